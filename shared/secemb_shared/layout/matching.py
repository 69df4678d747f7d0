"""Maximum bipartite matching of items to slots by augmenting paths.

A phone should not carry a library of sparse graphs for a few hundred items with four choices each.
"""

from collections.abc import Iterator

import numpy as np

from secemb_shared.randomness import Indices

UNMATCHED = -1


def maximum_matching(choices: Indices, slots: int) -> Indices:
    """Return one of its choices for each row, or -1, so that no slot is taken twice and as few as can be go without.

    Earlier rows win when not all can be served; whoever needs fairness shuffles the rows first.
    """
    search = _Search(choices.tolist(), slots)
    for item in list(search.greedy()):
        search.augment(item)
    return np.array(search.slot_of, dtype=np.int64)


class _Search:
    """A matching that grows; plain lists, because paths are short and NumPy's price is per call."""

    def __init__(self, choices: list[list[int]], slots: int) -> None:
        self.choices = choices
        self.slot_of = [UNMATCHED] * len(choices)
        self._holder = [UNMATCHED] * slots
        self._dead: set[int] = set()

    def greedy(self) -> Iterator[int]:
        """Give each item the first of its slots that is free; yield the items that found none."""
        for item, choices in enumerate(self.choices):
            free = next((slot for slot in choices if self._holder[slot] == UNMATCHED), UNMATCHED)
            if free == UNMATCHED:
                yield item
            else:
                self._holder[free], self.slot_of[item] = item, free

    def augment(self, start: int) -> None:
        """Serve one more item, by the shortest chain of others that can move, if there is one."""
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
        # All these slots lead only to one another and will do so for ever: no later search need enter them.
        self._dead.update(reached_by)

    def _shift(self, slot: int, reached_by: dict[int, int]) -> None:
        """Move every item of the chain that ends in a free slot one slot on."""
        while slot != UNMATCHED:
            item = reached_by[slot]
            self._holder[slot] = item
            slot, self.slot_of[item] = self.slot_of[item], slot
