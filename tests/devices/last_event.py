"""A model of events that a test can follow: the next event is like the last one."""

import numpy as np

from secemb_sdk.models import Floats, Gradients, Ratings
from secemb_sdk.models.window import draw_window
from secemb_shared.randomness import Indices, RandomBytes

NONE = np.zeros(0, np.float32)


class Last:
    """A model that looks back four events, and expects the rows that are like the last one."""

    row_width, dense_size, private_size, length, room = 2, 0, 1, 4, 9

    def first_private(self, random: np.random.Generator) -> Floats:
        return np.zeros(1, np.float32)

    def draw(self, events: Indices, *, items: int, room: int, random_bytes: RandomBytes) -> Ratings:
        return draw_window(events, items=items, length=5, room=room, random_bytes=random_bytes)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        return Gradients(0.0, np.zeros_like(rows), NONE, np.zeros(1, np.float32))

    def follow(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        assert ratings.window is not None
        return rows[ratings.window.events[-1], :1]

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        scores: Floats = -np.abs(rows[:, 0] - private[0])
        return scores
