"""Models as a user of the SDK writes them: without registration, without a solved private part."""

import numpy as np

from secemb_sdk.models import Floats, Gradients, Ratings
from secemb_shared.randomness import Indices


class Additive:
    """A rating is the item's bias and the person's, and nothing else; neither is solved."""

    def __init__(self, *, middle: float = 3.0, penalty: float = 0.1) -> None:
        self._middle, self._penalty = np.float32(middle), np.float32(penalty)
        self.row_width, self.dense_size, self.private_size = 1, 0, 1

    def first_private(self, random: np.random.Generator) -> Floats:
        return np.zeros(1, np.float32)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        errors = self.scores(rows, dense, private, ratings.items) - ratings.values
        by_row = 2 * (errors[:, np.newaxis] + self._penalty * rows)
        by_private = 2 * np.array([errors.sum() + self._penalty * private[0]], np.float32)
        return Gradients(float(errors @ errors), by_row, np.zeros(0, np.float32), by_private)

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        scores: Floats = self._middle + rows[:, 0] + private[0]
        return scores


NOT_A_MODEL = 7
