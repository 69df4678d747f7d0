"""How a vector file is read: strictly, so that every change of a value is noticed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf import Backend, RingArray
from secemb_shared.errors import SecEmbError
from secemb_shared.prg import Blocks
from secemb_shared.randomness import Indices
from secemb_shared.ring import Ring

Case = dict[str, Any]
Check = Callable[[Case, Backend], None]


def raw(text: str) -> bytes:
    """Read hexadecimal, in the one way the files write it."""
    data = bytes.fromhex(text)
    assert data.hex() == text
    return data


def blocks(texts: list[str]) -> Blocks:
    return np.frombuffer(b"".join(map(raw, texts)), dtype=np.uint8).reshape(len(texts), 16)


def elements(text: str, ring: Ring) -> RingArray:
    return ring.unpack(raw(text))


def words32(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(raw(text), dtype="<u4").astype(np.uint32)


def numbers(values: list[int]) -> Indices:
    return np.array(values, dtype=np.int64)


def error_of(action: Callable[[], object]) -> str | None:
    """Return the name of the product's error that an action ends with."""
    try:
        action()
    except SecEmbError as error:
        return type(error).__name__
    return None
