"""The default layout: a probabilistic batch code, several tables of bins with one slot each."""

import numpy as np

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout.base import Layout, Order
from secemb_shared.layout.geometry import Geometry
from secemb_shared.layout.permutation import Permutation
from secemb_shared.layout.placement import PADDING, UNMATCHED, maximum_matching
from secemb_shared.randomness import Indices, RandomBytes, draw_below

_BLOCK = 2**16  # items inverted at once: the temporary arrays stay in cache, which halves the time


class BinnedLayout(Layout):
    """In each table a public permutation π deals the catalogue into bins, and an item may use any of its bins.

    bin = π(item) mod bins, position = π(item) div bins. Table τ has the key
    `label.key(Purpose.LAYOUT, bytes([τ]))`, so the deal is new in every round and depends on nobody's items.
    """

    def __init__(self, geometry: Geometry, *, capacity: int, label: Label) -> None:
        if geometry.slots_per_bin != 1:
            raise LayoutError("the binned layout has one slot in each bin")
        super().__init__(geometry, capacity=capacity)
        keys = [label.key(Purpose.LAYOUT, bytes([table])) for table in range(geometry.tables)]
        self._permutations = [Permutation(geometry.items, key) for key in keys]

    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return the slot and the position of each item in each table, both (n, tables)."""
        self._check(items)
        dealt = np.stack([permutation.forward(items) for permutation in self._permutations], axis=1)
        first_slots = np.arange(self.geometry.tables, dtype=np.int64) * self.geometry.bins
        return first_slots + dealt % self.geometry.bins, dealt // self.geometry.bins

    def order(self) -> Order:
        """Return the item at each position of each bin, -1 behind the end of the short bins."""
        return np.concatenate([self._deal(permutation) for permutation in self._permutations])

    def _deal(self, permutation: Permutation) -> Order:
        """Return one table's bins as rows."""
        geometry = self.geometry
        dealt = np.full(geometry.leaves * geometry.bins, PADDING, dtype=np.int32)
        for start in range(0, geometry.items, _BLOCK):
            stop = min(start + _BLOCK, geometry.items)
            dealt[start:stop] = permutation.inverse(np.arange(start, stop, dtype=np.int64))
        return np.ascontiguousarray(dealt.reshape(geometry.leaves, geometry.bins).T)

    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        choices, positions = self.locate(chosen)
        slots = maximum_matching(choices, self.geometry.slots)
        matched = np.flatnonzero(slots != UNMATCHED)
        tables = slots[matched] // self.geometry.bins
        items = np.full(self.geometry.slots, PADDING, dtype=np.int64)
        items[slots[matched]] = chosen[matched]
        leaves = draw_below(self.geometry.leaves_by_slot(), random_bytes)
        leaves[slots[matched]] = positions[matched, tables]
        return items, leaves
