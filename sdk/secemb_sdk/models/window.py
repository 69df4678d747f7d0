"""Windows of events in time order, without torch: those that a round trains on, and the newest, for predictions."""

import numpy as np

from secemb_sdk.models.interface import Floats, Ratings, Window
from secemb_shared.randomness import Indices, RandomBytes, draw_below

_SEED_BYTES = 8
_FEWEST = 2  # events: one to predict, and one before it
_TRIES = 4  # draws for each stranger, because some draws are not strangers


def draw_window(events: Indices, *, items: int, length: int, room: int, random_bytes: RandomBytes) -> Ratings:
    """Return up to this many consecutive events, from a random position, and strangers.

    There is room for `room` different items. Strangers fill what events leave of it, at least half less one: a
    round reads the same number of rows in any case, and each of them improves training.
    """
    chosen = draw_events(events, min(length, (room + 1) // 2), random_bytes)
    if not chosen.size:
        return order([], [], seed=0)
    count = room - np.unique(chosen).size
    drawn = draw_below(np.full(_TRIES * count, items, dtype=np.int64), random_bytes)
    strangers = drawn[~np.isin(drawn, events)][:count]
    seed = int.from_bytes(random_bytes(_SEED_BYTES), "little")
    return order(chosen, strangers, seed=seed)


def draw_events(events: Indices, most: int, random_bytes: RandomBytes) -> Indices:
    """Return up to this many consecutive events, from a random position; none if there are too few to learn from."""
    count = min(events.size, most)
    if count < _FEWEST:
        return events[:0]
    start = int(draw_below(np.array([events.size - count + 1]), random_bytes)[0])
    return events[start : start + count]


def newest(events: Indices, length: int) -> Ratings:
    """Return the newest events, for a model to follow."""
    chosen = events[max(0, events.size - length) :]
    return order(chosen, [], seed=0)


def order(events: Indices | list[int], strangers: Indices | list[int], *, seed: int) -> Ratings:
    """Return the distinct items in order, with the window that tells which of them are events and strangers."""
    both = [np.array(one, dtype=np.int64) for one in (events, strangers)]
    together = np.concatenate(both)
    items = np.unique(together[together >= 0])
    places = [np.where(one < 0, -1, np.searchsorted(items, one)) for one in both]
    values: Floats = np.isin(items, both[0]).astype(np.float32)
    return Ratings(items, values, Window(places[0], places[1], seed))
