"""The paper's layout and a layout with bins: where items are, and how a device's items are placed in its slots."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout.geometry import Geometry
from secemb_shared.layout.permutation import Permutation
from secemb_shared.layout.placement import PADDING, UNMATCHED, Placement, maximum_matching
from secemb_shared.randomness import Indices, RandomBytes, draw_below, sample, secure_bytes

Order = npt.NDArray[np.int32]
_BLOCK = 2**16  # items inverted at a time: the temporary arrays stay in cache, which halves the time


class Layout(ABC):
    """The assignment of items to the leaves of slots in one round.

    `capacity` is the paper's m': a device with more items uses a random sample of this size.
    """

    def __init__(self, geometry: Geometry, *, capacity: int) -> None:
        if capacity < 1:
            raise LayoutError("capacity must be at least 1")
        self.geometry = geometry
        self.capacity = capacity

    @abstractmethod
    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return, for each item and table, the first slot of its bin and its position there, both (n, tables)."""

    @abstractmethod
    def order(self) -> Order:
        """Return the item at each position of each bin, (tables * bins, leaves), -1 past the end of a short bin."""

    @abstractmethod
    def order_of(self, first: int, last: int) -> Order:
        """Return the rows `first` to `last` of `order()`: some of the bins, numbered through all tables."""

    @abstractmethod
    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        """Return the item and the position of every slot; `chosen` is checked, cut to capacity and shuffled."""

    def place(self, items: Indices, random_bytes: RandomBytes = secure_bytes) -> Placement:
        """Place a device's items, padded or truncated to the round's shape: the paper's PadOrTruncIdx."""
        self._check(items)
        # The sample is in random order: which items are placed first must not depend on their numbers.
        chosen = sample(items, self.capacity, random_bytes)
        by_slot, leaves = self._fill(chosen, random_bytes)
        truncated = items.size - int(np.count_nonzero(by_slot != PADDING))
        return Placement(items=by_slot, leaves=leaves, truncated=truncated)

    def _check(self, items: Indices) -> None:
        if items.ndim != 1 or items.dtype != np.int64:
            raise LayoutError("items must be a one-dimensional int64 array")
        if items.size and not 0 <= int(items.min()) <= int(items.max()) < self.geometry.items:
            raise LayoutError("an item is out of range for the catalogue")
        if np.unique(items).size != items.size:
            raise LayoutError("items must not contain duplicates")


class DirectLayout(Layout):
    """One table, one bin, m' slots: an item's position is its number and any slot can hold it."""

    def __init__(self, geometry: Geometry) -> None:
        if not geometry.is_direct:
            raise LayoutError("the direct layout must have one table with one bin")
        super().__init__(geometry, capacity=geometry.slots_per_bin)

    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return slot 0, the first of the only bin, and the item's number as position."""
        self._check(items)
        leaves = items.reshape(-1, 1).copy()
        return np.zeros_like(leaves), leaves

    def order(self) -> Order:
        """Return the items in their own order, as one row."""
        return np.arange(self.geometry.items, dtype=np.int32).reshape(1, -1)

    def order_of(self, first: int, last: int) -> Order:
        """Return the items in their own order, if the only bin is among those."""
        return self.order()[first:last]

    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        slots = sample(np.arange(self.geometry.slots, dtype=np.int64), self.geometry.slots, random_bytes)
        items = np.full(self.geometry.slots, PADDING, dtype=np.int64)
        leaves = np.empty_like(items)
        items[slots[: chosen.size]] = chosen
        leaves[slots] = np.concatenate([chosen, self._padding(chosen, random_bytes)])
        return items, leaves

    def _padding(self, chosen: Indices, random_bytes: RandomBytes) -> Indices:
        """Return random items for the remaining slots: distinct ones that are not in `chosen`, while there are any."""
        missing = self.geometry.slots - chosen.size
        if 2 * (missing + chosen.size) <= self.geometry.items:
            return self._draw_others(chosen, missing, random_bytes)
        others = np.delete(np.arange(self.geometry.items, dtype=np.int64), chosen)
        fresh = sample(others, missing, random_bytes)
        repeats = np.full(missing - fresh.size, self.geometry.items, dtype=np.int64)
        return np.concatenate([fresh, draw_below(repeats, random_bytes)])

    def _draw_others(self, chosen: Indices, missing: int, random_bytes: RandomBytes) -> Indices:
        """Draw until there are enough distinct items, so that a phone need not list a catalogue of millions."""
        found = chosen
        while found.size < chosen.size + missing:
            drawn = draw_below(np.full(missing, self.geometry.items, dtype=np.int64), random_bytes)
            found = np.concatenate([found, drawn])
            _, first = np.unique(found, return_index=True)
            found = found[np.sort(first)]
        return found[chosen.size : chosen.size + missing]


class BinnedLayout(Layout):
    """In each table a public permutation π distributes the catalogue over bins; an item may use its bin in any table.

    bin = π(item) mod bins, position = π(item) div bins. Table τ has the key
    `label.key(Purpose.LAYOUT, bytes([τ]))`, so the assignment changes every round and does not depend on anyone's
    items.
    """

    def __init__(self, geometry: Geometry, *, capacity: int, label: Label) -> None:
        if geometry.slots_per_bin != 1:
            raise LayoutError("the binned layout must have one slot per bin")
        super().__init__(geometry, capacity=capacity)
        keys = [label.key(Purpose.LAYOUT, bytes([table])) for table in range(geometry.tables)]
        self._permutations = [Permutation(geometry.items, key) for key in keys]
        self._first_slots = np.arange(geometry.tables, dtype=np.int64) * geometry.bins
        self._leaves_by_slot = geometry.leaves_by_slot()

    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return the slot and the position of each item in each table, both (n, tables)."""
        self._check(items)
        return self._dealt(items)

    def _dealt(self, items: Indices) -> tuple[Indices, Indices]:
        dealt = np.stack([permutation.forward(items) for permutation in self._permutations], axis=1)
        positions, bins = np.divmod(dealt, self.geometry.bins)
        return self._first_slots + bins, positions

    def order(self) -> Order:
        """Return the item at each position of each bin, -1 past the end of short bins."""
        return np.concatenate([self._deal(permutation) for permutation in self._permutations])

    def _deal(self, permutation: Permutation) -> Order:
        """Return one table's bins as rows."""
        geometry = self.geometry
        dealt = np.full(geometry.leaves * geometry.bins, PADDING, dtype=np.int32)
        for start in range(0, geometry.items, _BLOCK):
            stop = min(start + _BLOCK, geometry.items)
            dealt[start:stop] = permutation.inverse(np.arange(start, stop, dtype=np.int64))
        return np.ascontiguousarray(dealt.reshape(geometry.leaves, geometry.bins).T)

    def order_of(self, first: int, last: int) -> Order:
        """Return the item at each position of some bins; the time and memory are those of their items."""
        geometry, order = self.geometry, np.full((last - first, self.geometry.leaves), PADDING, dtype=np.int32)
        at_once = max(1, _BLOCK // geometry.leaves)
        positions = np.arange(geometry.leaves, dtype=np.int64) * geometry.bins
        for table, permutation in enumerate(self._permutations):
            ours = range(max(first, table * geometry.bins), min(last, (table + 1) * geometry.bins))
            for start in ours[::at_once]:
                bins = np.arange(start, min(start + at_once, ours.stop), dtype=np.int64)
                places = positions + (bins - table * geometry.bins)[:, None]
                items = permutation.inverse(np.minimum(places, geometry.items - 1))
                order[bins - first] = np.where(places < geometry.items, items, PADDING)
        return order

    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        choices, positions = self._dealt(chosen)
        slots = maximum_matching(choices, self.geometry.slots)
        matched = np.flatnonzero(slots != UNMATCHED)
        tables = slots[matched] // self.geometry.bins
        items = np.full(self.geometry.slots, PADDING, dtype=np.int64)
        items[slots[matched]] = chosen[matched]
        leaves = draw_below(self._leaves_by_slot, random_bytes)
        leaves[slots[matched]] = positions[matched, tables]
        return items, leaves
