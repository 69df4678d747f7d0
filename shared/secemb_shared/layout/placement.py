"""Where one device's items sit in one round."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import LayoutError
from secemb_shared.randomness import Indices

PADDING = -1
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Placement:
    """One device's items by slot. Private: it is what the servers must never learn."""

    items: Indices  # (slots,) the item in each slot, -1 in a padding slot
    leaves: Indices  # (slots,) the position each slot's key points at; padding slots point at a random one
    truncated: int  # how many of the device's items found no place

    def __repr__(self) -> str:
        return f"Placement(slots={self.items.size})"  # neither items nor how many there are

    def arrange(self, item_ids: Indices, values: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Return the values by slot, shape (slots, width), zeros for padding: the paper's PadOrTruncEmb.

        Row i of `values` belongs to `item_ids[i]`. Rows of truncated items are left out. There can be no more of
        those than items were truncated, so an id that was never placed is noticed unless as many were lost.
        """
        if len(values) != item_ids.size:
            raise LayoutError("one row of values for each item id is needed")
        slots = self._slots_of(item_ids)
        placed = slots != PADDING
        if item_ids.size - np.count_nonzero(placed) > self.truncated:
            raise LayoutError("values were given for items this placement was not made for")
        result = np.zeros((self.items.size, *values.shape[1:]), dtype=values.dtype)
        result[slots[placed]] = values[placed]
        return result

    def collect(self, rows: npt.NDArray[Value]) -> tuple[Indices, npt.NDArray[Value]]:
        """Return the placed items and, of the rows by slot, those that belong to them."""
        if len(rows) != self.items.size:
            raise LayoutError("one row for each slot is needed")
        placed = self.items != PADDING
        return self.items[placed], rows[placed]

    def _slots_of(self, item_ids: Indices) -> Indices:
        """Return the slot of each item, -1 for items without one."""
        if np.unique(item_ids).size != item_ids.size or (item_ids < 0).any():
            raise LayoutError("item ids must be different and not negative")
        order = np.argsort(self.items, kind="stable")
        at = np.minimum(np.searchsorted(self.items, item_ids, sorter=order), self.items.size - 1)
        return np.where(self.items[order[at]] == item_ids, order[at], PADDING)
