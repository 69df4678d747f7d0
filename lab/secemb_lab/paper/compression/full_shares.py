"""Secure FedRec as a lossless compressor: two additive shares of the whole update, both sent in full."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secemb_lab.paper.compression.compressor import Compressor, shape_of
from secemb_sdk.models import Floats
from secemb_sdk.models.update import Numbers
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import RandomBytes

_SHARES = 2


@dataclass(frozen=True, slots=True)
class SecureFedRec(Compressor):
    """A uniform share for one server, and the update in fixed point less that share for the other."""

    name: ClassVar[str] = "Secure FedRec"

    def size(self, round_: RoundSpec) -> int:
        """Return two elements of the ring for each number."""
        items, width = shape_of(round_)
        return _SHARES * round_.task.ring.element_bytes * items * width

    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return both shares, concatenated."""
        ring = round_.task.ring
        mask = random_bytes(self.size(round_) // _SHARES)
        share = ring.encode(update, bound=round_.task.bound) - np.frombuffer(mask, ring.dtype).reshape(update.shape)
        return mask + share.tobytes()

    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        ring = round_.task.ring
        first, second = np.frombuffer(message, dtype=ring.dtype).reshape(_SHARES, *shape_of(round_))
        return ring.decode(first + second)
