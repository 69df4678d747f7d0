"""The paper's layout: m' slots, and the tree of each spans the whole catalogue."""

import numpy as np

from secemb_shared.errors import LayoutError
from secemb_shared.layout.base import Layout, Order
from secemb_shared.layout.geometry import Geometry
from secemb_shared.layout.placement import PADDING
from secemb_shared.randomness import Indices, RandomBytes, draw_below, sample


class DirectLayout(Layout):
    """One table, one bin, m' slots: an item's position is its number and any slot can hold it."""

    def __init__(self, geometry: Geometry) -> None:
        if not geometry.is_direct:
            raise LayoutError("the direct layout has one table with one bin")
        super().__init__(geometry, capacity=geometry.slots_per_bin)

    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return slot 0, the first of the only bin, and the item's number as position."""
        self._check(items)
        leaves = items.reshape(-1, 1).copy()
        return np.zeros_like(leaves), leaves

    def order(self) -> Order:
        """Return the items in their own order, as one row."""
        return np.arange(self.geometry.items, dtype=np.int32).reshape(1, -1)

    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        slots = sample(np.arange(self.geometry.slots, dtype=np.int64), self.geometry.slots, random_bytes)
        items = np.full(self.geometry.slots, PADDING, dtype=np.int64)
        leaves = np.empty_like(items)
        items[slots[: chosen.size]] = chosen
        leaves[slots] = np.concatenate([chosen, self._padding(chosen, random_bytes)])
        return items, leaves

    def _padding(self, chosen: Indices, random_bytes: RandomBytes) -> Indices:
        """Return random items for the slots left over: different ones from outside `chosen` while there are any."""
        missing = self.geometry.slots - chosen.size
        if 2 * (missing + chosen.size) <= self.geometry.items:
            return self._draw_others(chosen, missing, random_bytes)
        others = np.delete(np.arange(self.geometry.items, dtype=np.int64), chosen)
        fresh = sample(others, missing, random_bytes)
        repeats = np.full(missing - fresh.size, self.geometry.items, dtype=np.int64)
        return np.concatenate([fresh, draw_below(repeats, random_bytes)])

    def _draw_others(self, chosen: Indices, missing: int, random_bytes: RandomBytes) -> Indices:
        """Draw until there are enough different items; a phone need not list a catalogue of millions for that."""
        found = chosen
        while found.size < chosen.size + missing:
            drawn = draw_below(np.full(missing, self.geometry.items, dtype=np.int64), random_bytes)
            found = np.concatenate([found, drawn])
            _, first = np.unique(found, return_index=True)
            found = found[np.sort(first)]
        return found[chosen.size : chosen.size + missing]
