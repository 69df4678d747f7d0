"""Domain separation: one label for each task, round, session and purpose.

A value derived for one purpose is useless for any other, and no two sessions share an AES key, so attacking many
sessions at once is no cheaper than attacking one.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from functools import cache

from secemb_shared.errors import SpecError

PROTOCOL = b"secemb/2"
NO_SESSION = bytes(16)
_LARGEST_NUMBER = 2**64 - 1


class Purpose(Enum):
    """The purpose of a derived key. The value is hashed, so changing one changes the protocol."""

    LEFT_CHILD = "path/left"
    RIGHT_CHILD = "path/right"
    CONVERT = "convert/update"
    LEAF_HASH = "check/leaf"
    FINGERPRINT = "check/fingerprint"
    ROOTS = "stream/roots"
    DENSE_SHARE = "stream/dense"
    SUM_SHARE = "stream/sum"
    BINDING = "binding"
    LAYOUT = "layout"
    ROW_TAG = "row-tag"
    UPLOAD_MAC = "upload/proof"
    ANSWER_MASK = "stream/mask"
    RELAY_RECEIPT = "relay/receipt"
    RELAY_DENSE = "relay/dense"
    NORM_COMMIT = "norm/commit"
    NORM_CHALLENGE = "norm/challenge"
    NORM_JOINT = "norm/joint"
    NORM_SHARE = "stream/norm"
    NORM_POINT = "norm/point"


@cache
def _named(purpose: Purpose) -> bytes:
    """Return the purpose's name prefixed with its length, so that no name can run into the bytes after it."""
    text = purpose.value.encode()
    return len(text).to_bytes(1, "little") + text


@dataclass(frozen=True, slots=True)
class Label:
    """The place of one derivation: a session of a round, or with `NO_SESSION` a round or model version."""

    task_id: bytes
    number: int
    session_id: bytes = NO_SESSION

    def __post_init__(self) -> None:
        if len(self.task_id) != 32:
            raise SpecError("task_id must be 32 bytes, the SHA-256 of the task's canonical form")
        if len(self.session_id) != 16:
            raise SpecError("session_id must be 16 bytes")
        if not 0 <= self.number <= _LARGEST_NUMBER:
            raise SpecError("a round or version number must fit in 64 bits")

    def derive(self, purpose: Purpose, secret: bytes = b"") -> bytes:
        """Return 32 bytes for `purpose`; `secret` is a 16-byte seed for streams and empty for public keys."""
        number = self.number.to_bytes(8, "little")
        place = PROTOCOL + self.task_id + number + self.session_id
        return hashlib.sha256(place + _named(purpose) + secret).digest()

    def key(self, purpose: Purpose, secret: bytes = b"") -> bytes:
        """Return the AES-128 key for `purpose`: the first half of the derivation."""
        return self.derive(purpose, secret)[:16]
