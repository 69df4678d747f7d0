"""A compressor: a device's message in place of its update of the whole table, and its decoding by a server."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from secemb_sdk.models import Floats
from secemb_sdk.models.update import Numbers
from secemb_shared.errors import MessageError
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices, RandomBytes

FLOAT_BYTES = 4


class Compressor(ABC):
    """One way to encode an update of all rows as a message whose length depends only on the round.

    Zero rows stay zero, and so do those that a device has not trained.
    """

    name: ClassVar[str]  # as in the paper's tables

    @abstractmethod
    def size(self, round_: RoundSpec) -> int:
        """Return the length of every message of a round, in bytes."""

    @abstractmethod
    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return the message; `update` is (items, row width)."""

    def decompress(self, round_: RoundSpec, message: bytes) -> Numbers:
        """Return the update that the server sums, (items, row width)."""
        if len(message) != self.size(round_):
            raise MessageError(f"a message of {self.name} has {self.size(round_)} bytes here, not {len(message)}")
        return self._read(round_, message)

    @abstractmethod
    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        """Return the update in a message of the right length."""

    def __call__(self, round_: RoundSpec, items: Indices, updates: Numbers, random_bytes: RandomBytes) -> Numbers:
        """Return a device's rows after encoding and decoding, which makes a plain run lossy."""
        update = np.zeros(shape_of(round_), dtype=np.float32)
        update[items] = updates
        arrived: Numbers = self.decompress(round_, self.compress(round_, update, random_bytes))[items]
        return arrived


def shape_of(round_: RoundSpec) -> tuple[int, int]:
    """Return the shape of an update of all rows."""
    return round_.task.items, round_.task.row_width


def touched(update: Floats) -> Indices:
    """Return the non-zero rows: a device has a few hundred, and work on the others would be wasted."""
    return np.flatnonzero(update.any(axis=1))
