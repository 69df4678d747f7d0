"""Events in time order, without torch: those that a round learns from, and the newest, which the next one follows."""

import numpy as np

from secemb_sdk.models.interface import Floats, Ratings, Window
from secemb_shared.randomness import Indices, RandomBytes, draw_below

_SEED_BYTES = 8
_FEWEST = 2  # events: one to learn from what came before it
_TRIES = 4  # draws for each stranger, some of which are no strangers


def draw_window(events: Indices, *, items: int, length: int, room: int, random_bytes: RandomBytes) -> Ratings:
    """Return up to this many events in a row, from a place that is drawn, and a stranger beside each but the first.

    There is room for so many different items, of events and strangers together.
    """
    count = min(events.size, length, (room + 1) // 2)
    if count < _FEWEST:
        return order([], [], seed=0)
    start = int(draw_below(np.array([events.size - count + 1]), random_bytes)[0])
    drawn = draw_below(np.full(_TRIES * (count - 1), items, dtype=np.int64), random_bytes)
    strangers = np.full(count, -1, dtype=np.int64)
    found = drawn[~np.isin(drawn, events)][: count - 1]
    strangers[1 : 1 + found.size] = found
    seed = int.from_bytes(random_bytes(_SEED_BYTES), "little")
    return order(events[start : start + count], strangers, seed=seed)


def newest(events: Indices, length: int) -> Ratings:
    """Return the newest events, for a model to follow."""
    chosen = events[max(0, events.size - length) :]
    return order(chosen, np.full(chosen.size, -1, dtype=np.int64), seed=0)


def order(events: Indices | list[int], strangers: Indices | list[int], *, seed: int) -> Ratings:
    """Return items, each once and in order, with the window that says which of them are events and strangers."""
    both = np.array([events, strangers], dtype=np.int64)  # (2, n)
    items = np.unique(both[both >= 0])
    places = np.where(both < 0, -1, np.searchsorted(items, both))
    values: Floats = np.isin(items, both[0]).astype(np.float32)
    return Ratings(items, values, Window(places[0], places[1], seed))
