"""A compressor: what a device sends in place of its update of the whole table, and what a server reads from that."""

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
    """One way to write an update of all rows as a message whose length the round decides.

    Rows that are zero stay zero, and so does what a device has not trained.
    """

    name: ClassVar[str]  # as in the paper's tables

    @abstractmethod
    def size(self, round_: RoundSpec) -> int:
        """Return the length of every message of a round, in bytes."""

    @abstractmethod
    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return the message; `update` is (items, row width)."""

    def decompress(self, round_: RoundSpec, message: bytes) -> Numbers:
        """Return what the server adds up, (items, row width)."""
        if len(message) != self.size(round_):
            raise MessageError(f"a message of {self.name} has {self.size(round_)} bytes here, not {len(message)}")
        return self._read(round_, message)

    @abstractmethod
    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        """Return the update in a message of the right length."""

    def __call__(self, round_: RoundSpec, items: Indices, updates: Numbers, random_bytes: RandomBytes) -> Numbers:
        """Return what arrives of a device's rows, by way of a whole message: what makes a plain run lossy."""
        update = np.zeros(shape_of(round_), dtype=np.float32)
        update[items] = updates
        arrived: Numbers = self.decompress(round_, self.compress(round_, update, random_bytes))[items]
        return arrived


def shape_of(round_: RoundSpec) -> tuple[int, int]:
    """Return the shape of an update of all rows."""
    return round_.task.items, round_.task.row_width


def touched(update: Floats) -> Indices:
    """Return the rows that are not zero: a device has a few hundred, and work on the others would come to nothing."""
    return np.flatnonzero(update.any(axis=1))
