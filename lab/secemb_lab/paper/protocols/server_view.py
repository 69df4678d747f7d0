"""A server's view of one device after a round, for any protocol, and an attack that reads items from it."""

from dataclasses import dataclass

import numpy as np

from secemb_shared.dpf import RingArray
from secemb_shared.randomness import Indices

SMALL = 2**24  # encoded updates are below it; of numbers that are uniform in the ring 1 of 128 is


@dataclass(frozen=True, slots=True, repr=False)
class ServerView:
    """One server's view of one device, by item."""

    named: Indices  # items that the messages single out
    rows: RingArray  # (items, width): what the server adds to its sum for this device; zeros where nothing came

    def guesses(self) -> list[set[int]]:
        """Attack: return the items that are named, and those whose row has two small numbers that are not zero."""
        size = np.abs(self.rows.view(np.int32).astype(np.int64))
        small = ((size > 0) & (size < SMALL)).sum(axis=1) >= 2
        return [set(self.named.tolist()), set(np.flatnonzero(small).tolist())]

    def values(self, update: RingArray) -> int:
        """Attack: return how many non-zero numbers of the device's true update (items, width) stand here in clear."""
        return int(((self.rows == update) & (update != 0)).sum())


@dataclass(frozen=True, slots=True)
class Leak:
    """The accuracy of the better guess of a device's items."""

    recall: float  # share of the device's items that was found
    precision: float  # share of the items found that are the device's
    base: float  # precision of a guess that knows nothing

    @classmethod
    def of(cls, view: ServerView, items: Indices) -> "Leak":
        """Return the accuracy of the attack."""
        true, base = set(items.tolist()), items.size / len(view.rows)
        hits = [(len(guess & true), len(guess)) for guess in view.guesses()]
        rates = [(found / len(true), found / count) for found, count in hits if count]
        return max((cls(recall, precision, base) for recall, precision in rates), key=lambda one: one.score)

    @property
    def score(self) -> float:
        """Return the harmonic mean of both rates."""
        whole = self.recall + self.precision
        return 2 * self.recall * self.precision / whole if whole else 0.0

    @property
    def found(self) -> bool:
        """Tell whether the items were found: much better than a guess that names every item."""
        return self.score > 2 * (2 * self.base / (1 + self.base))
