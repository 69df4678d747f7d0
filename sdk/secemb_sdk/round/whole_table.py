"""The whole table in an evaluation of events: with it a device ranks its newest event among all items.

A private read has no room for that. The table is public, and every device of the round fetches it: that a device does
says nothing about its owner.
"""

from dataclasses import dataclass

import numpy as np

from secemb_sdk.models import Floats, Model
from secemb_sdk.models.limits import Doubles
from secemb_shared.messages.measures import MOST_STRANGERS
from secemb_shared.randomness import Indices


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class WholeTable:
    """All rows, and the items that are not ranked: those that the owner has chosen; words come again."""

    rows: Floats  # (items, row width)
    chosen: Indices
    seed: int  # of the strangers, so that a session that continues draws the same

    def score(self, model: Model, dense: Floats, private: Floats) -> tuple[Doubles, Doubles]:
        """Return the model's score of each item, and its bias."""
        scores = model.scores(self.rows, dense, private, np.arange(len(self.rows)))
        return scores.astype(np.float64), self.rows[:, -1].astype(np.float64)

    def some_strangers(self) -> Indices:
        """Return items that the owner has not chosen, drawn uniformly; no server sees which."""
        every = self.all_strangers()
        return np.random.default_rng(self.seed).choice(every, min(MOST_STRANGERS, every.size), replace=False)

    def all_strangers(self) -> Indices:
        """Return all items that the owner has not chosen."""
        return np.setdiff1d(np.arange(len(self.rows)), self.chosen)
