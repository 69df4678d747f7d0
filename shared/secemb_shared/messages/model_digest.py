"""The digest that names one version of a model: both servers publish it, and devices check copies against it.

It is SHA-256 over

    "secemb/1 model"            14 bytes of ASCII
    task_id                     32 bytes
    version                     u64, little-endian, as are the next three
    items, width, dense size    u64 each
    the rows                    items · width float32, little-endian, row after row
    the dense part              dense size float32, little-endian

and so depends on no file format: both servers, and programs in other languages, can compute it.
"""

import hashlib
from collections.abc import Iterable

_DOMAIN = b"secemb/1 model"


def model_digest(
    task_id: bytes,
    *,
    version: int,
    items: int,
    width: int,
    dense: int,
    parts: Iterable[bytes | memoryview],
) -> bytes:
    """Return the digest of a version whose bytes, rows and then the dense part, come in parts of any size."""
    hashed = hashlib.sha256(_DOMAIN + task_id)
    for number in (version, items, width, dense):
        hashed.update(number.to_bytes(8, "little"))
    for part in parts:
        hashed.update(part)
    return hashed.digest()
