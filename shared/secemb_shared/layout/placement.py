"""The slots of one device's items in one round: a maximum bipartite matching of items to slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from secemb_shared import kernel
from secemb_shared.errors import LayoutError
from secemb_shared.randomness import Indices

UNMATCHED = -1


def maximum_matching(choices: Indices, slots: int) -> Indices:
    """Return one of its choices for each row, or -1, so that no slot is used twice and as few rows as possible get -1.

    If not all rows can get a slot, earlier rows take precedence; for fairness, shuffle the rows first.
    """
    return kernel.match(choices, slots) if kernel.native_available() else match(choices, slots)


def match(choices: Indices, slots: int) -> Indices:
    """Give each row its first free slot, then place the others while moving as few rows as possible.

    This defines what the kernel computes.
    """
    search = _Search(choices.tolist(), slots)
    for item in list(search.greedy()):
        search.augment(item)
    return np.array(search.slot_of, dtype=np.int64)


class _Search:
    """A matching under construction. It uses plain lists, because paths are short and NumPy has a cost per call."""

    def __init__(self, choices: list[list[int]], slots: int) -> None:
        self.choices = choices
        self.slot_of = [UNMATCHED] * len(choices)
        self._holder = [UNMATCHED] * slots
        self._dead: set[int] = set()

    def greedy(self) -> Iterator[int]:
        """Give each item its first free slot; yield the items that have none."""
        for item, choices in enumerate(self.choices):
            free = next((slot for slot in choices if self._holder[slot] == UNMATCHED), UNMATCHED)
            if free == UNMATCHED:
                yield item
            else:
                self._holder[free], self.slot_of[item] = item, free

    def augment(self, start: int) -> None:
        """Place one more item by moving the shortest possible chain of other items, if there is one."""
        reached_by: dict[int, int] = {}
        queue = [start]
        for item in queue:
            for slot in self.choices[item]:
                if slot in reached_by or slot in self._dead:
                    continue
                reached_by[slot] = item
                if self._holder[slot] == UNMATCHED:
                    return self._shift(slot, reached_by)
                queue.append(self._holder[slot])
        # These slots lead only to one another, and this cannot change: no later search need visit them.
        self._dead.update(reached_by)

    def _shift(self, slot: int, reached_by: dict[int, int]) -> None:
        """Move each item of the chain that ends in a free slot to the next slot."""
        while slot != UNMATCHED:
            item = reached_by[slot]
            self._holder[slot] = item
            slot, self.slot_of[item] = self.slot_of[item], slot


PADDING = -1
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Placement:
    """One device's items by slot. Private: the servers must never learn this."""

    items: Indices  # (slots,) the item in each slot, -1 in a padding slot
    leaves: Indices  # (slots,) the position that each slot's key points to; random in a padding slot
    truncated: int  # how many of the device's items were not placed

    def __repr__(self) -> str:
        return f"Placement(slots={self.items.size})"  # shows neither the items nor their number

    def arrange(self, item_ids: Indices, values: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Return the values by slot, shape (slots, width), zeros for padding: the paper's PadOrTruncEmb.

        Row i of `values` belongs to `item_ids[i]`. Rows of truncated items are left out. There can be no more of them
        than items that were truncated, so an id that was never placed is detected, unless that many items were
        truncated.
        """
        if len(values) != item_ids.size:
            raise LayoutError("values must have one row per item id")
        slots = self._slots_of(item_ids)
        placed = slots != PADDING
        if item_ids.size - np.count_nonzero(placed) > self.truncated:
            raise LayoutError("values include items that are not in this placement")
        result = np.zeros((self.items.size, *values.shape[1:]), dtype=values.dtype)
        result[slots[placed]] = values[placed]
        return result

    def collect(self, rows: npt.NDArray[Value]) -> tuple[Indices, npt.NDArray[Value]]:
        """Return the placed items and, of the rows by slot, those that belong to them."""
        if len(rows) != self.items.size:
            raise LayoutError("rows must have one row per slot")
        placed = self.items != PADDING
        return self.items[placed], rows[placed]

    def _slots_of(self, item_ids: Indices) -> Indices:
        """Return the slot of each item, -1 for items without one."""
        if np.unique(item_ids).size != item_ids.size or (item_ids < 0).any():
            raise LayoutError("item ids must be unique and non-negative")
        order = np.argsort(self.items, kind="stable")
        at = np.minimum(np.searchsorted(self.items, item_ids, sorter=order), self.items.size - 1)
        return np.where(self.items[order[at]] == item_ids, order[at], PADDING)
