"""A model whose arithmetic does not depend on what the protocol draws at random.

Where items are placed decides in which order a device gets its rows, and sums of floats depend on their order. Here
rows are put in the order of their items before anything is computed, and the first private part comes from a seed:
two runs with the same seed then have the same weights to the last bit, whatever carried them.
"""

import numpy as np

from secemb_sdk.models import Floats, Gradients, Model, Ratings
from secemb_shared.randomness import Indices

_FIRST = 11  # what the seed is used for


class Reproducible:
    """A model of one person's device in a run with a seed."""

    def __init__(self, model: Model, *, seed: int, person: int) -> None:
        self._model, self._key = model, (seed, _FIRST, person)

    @property
    def row_width(self) -> int:
        """Return how many numbers a row has."""
        return self._model.row_width

    @property
    def dense_size(self) -> int:
        """Return how many shared numbers there are outside the table."""
        return self._model.dense_size

    @property
    def private_size(self) -> int:
        """Return how many numbers stay on the device."""
        return self._model.private_size

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return the private part that belongs to the seed and the person."""
        return self._model.first_private(np.random.default_rng(self._key))

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the gradients, computed in the order of the items."""
        order = np.argsort(ratings.items)
        sorted_ = Ratings(ratings.items[order], ratings.values[order])
        found = self._model.gradients(rows[order], dense, private, sorted_)
        by_row = np.empty_like(found.rows)
        by_row[order] = found.rows
        return Gradients(found.loss, by_row, found.dense, found.private)

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return the scores, computed one by one: the width of a matrix may change the last bit of a product."""
        found = [self._model.scores(rows[i : i + 1], dense, private, items[i : i + 1]) for i in range(items.size)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.float32)
