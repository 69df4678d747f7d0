"""What every layout can do: say where items live, and place a device's items in its slots."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import LayoutError
from secemb_shared.layout.geometry import Geometry
from secemb_shared.layout.placement import PADDING, Placement
from secemb_shared.randomness import Indices, RandomBytes, sample, secure_bytes

Order = npt.NDArray[np.int32]


class Layout(ABC):
    """Which leaf of which slot is which item, for one round.

    `capacity` is the paper's m': of more items than that a device keeps a random sample.
    """

    def __init__(self, geometry: Geometry, *, capacity: int) -> None:
        if capacity < 1:
            raise LayoutError("the capacity must be at least one item")
        self.geometry = geometry
        self.capacity = capacity

    @abstractmethod
    def locate(self, items: Indices) -> tuple[Indices, Indices]:
        """Return, for each item and table, the first slot of its bin and its position there, both (n, tables)."""

    @abstractmethod
    def order(self) -> Order:
        """Return the item at each position of each bin, (tables * bins, leaves), -1 where the bin is short."""

    @abstractmethod
    def _fill(self, chosen: Indices, random_bytes: RandomBytes) -> tuple[Indices, Indices]:
        """Return the item and the position of every slot; `chosen` is checked, cut to capacity and shuffled."""

    def place(self, items: Indices, random_bytes: RandomBytes = secure_bytes) -> Placement:
        """Place a device's items, pad or truncate them to the round's shape: the paper's PadOrTruncIdx."""
        self._check(items)
        # The sample comes in random order: who is served first must not depend on an item's number.
        chosen = sample(items, self.capacity, random_bytes)
        by_slot, leaves = self._fill(chosen, random_bytes)
        truncated = items.size - int(np.count_nonzero(by_slot != PADDING))
        return Placement(items=by_slot, leaves=leaves, truncated=truncated)

    def _check(self, items: Indices) -> None:
        if items.ndim != 1 or items.dtype != np.int64:
            raise LayoutError("items must be a flat array of int64")
        if items.size and not 0 <= int(items.min()) <= int(items.max()) < self.geometry.items:
            raise LayoutError("an item lies outside the catalogue")
        if np.unique(items).size != items.size:
            raise LayoutError("an item was given twice")
