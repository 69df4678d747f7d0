"""The public shape of a round: how many trees a device fills and how many leaves each one spans."""

from dataclasses import dataclass

import numpy as np

from secemb_shared.errors import LayoutError
from secemb_shared.randomness import Indices

MOST_ITEMS = 2**31 - 1  # `Layout.order` and the kernel keep items as int32
MOST_TABLES = 255  # a table's number is one byte of its key's derivation


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The sizes that both servers and all devices of a round agree on.

    Slot `(table * bins + bin) * slots_per_bin + k` is the k-th tree over that bin. A bin holds the positions p
    with `p * bins + bin < items`, so when `bins` does not divide `items` the last bins have one position less
    than `leaves`. The paper's direct layout is one table with one bin and m' slots in it.
    """

    items: int
    tables: int
    bins: int
    slots_per_bin: int

    def __post_init__(self) -> None:
        if not 1 <= self.items <= MOST_ITEMS:
            raise LayoutError(f"a catalogue must have 1 to {MOST_ITEMS} items")
        if not 1 <= self.tables <= MOST_TABLES:
            raise LayoutError(f"a layout must have 1 to {MOST_TABLES} tables")
        if not 1 <= self.bins <= self.items:
            raise LayoutError("a table must have at least one bin and at most one bin per item")
        if self.slots_per_bin < 1:
            raise LayoutError("a bin needs at least one slot")

    @property
    def slots(self) -> int:
        """The number of keys that each device sends."""
        return self.tables * self.bins * self.slots_per_bin

    @property
    def leaves(self) -> int:
        """The number of positions in the largest bin."""
        return -(-self.items // self.bins)

    @property
    def depth(self) -> int:
        """The number of levels in a tree: ceil(log2(leaves))."""
        return (self.leaves - 1).bit_length()

    @property
    def is_direct(self) -> bool:
        """Whether every tree spans the whole catalogue in one table, as in the paper."""
        return self.tables == 1 and self.bins == 1

    def leaves_by_slot(self) -> Indices:
        """Return how many positions of each slot's tree hold an item, shape (slots,)."""
        sizes = (self.items - np.arange(self.bins, dtype=np.int64) + self.bins - 1) // self.bins
        return np.tile(np.repeat(sizes, self.slots_per_bin), self.tables)
