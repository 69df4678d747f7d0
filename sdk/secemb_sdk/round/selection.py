"""Which items a device brings to a round.

    train      all that it has rated, except those it holds out
    survey     all that it has rated
    evaluate   items that it holds out, and strangers: items it has not rated, to rank one of the others among

If a round does not have room for all items, each session draws a new sample. Items outside the catalogue are left out
and counted.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from secemb_sdk.models import Floats, Ratings
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.randomness import Indices, RandomBytes, draw_below, sample

MOST_STRANGERS = 100


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Selection:
    """Items and their owner's ratings. Private."""

    items: Indices  # (n,) each once; in an evaluation the one to be ranked comes first
    values: Floats  # (n,) NaN for strangers
    unknown: int  # items of this device that are not in the catalogue

    def ratings_of(self, items: Indices) -> Ratings:
        """Return the ratings of some of these items, in their order."""
        order = np.argsort(self.items)
        return Ratings(items, self.values[order[np.searchsorted(self.items, items, sorter=order)]])


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOut:
    """Which ratings are only for evaluation: a keyed hash of the item decides, so that it never changes."""

    key: bytes = field(repr=False)
    fraction: float

    def __contains__(self, item: int) -> bool:
        name = item.to_bytes(8, "little")
        digest = hashlib.blake2b(name, key=self.key, digest_size=8).digest()
        return int.from_bytes(digest, "little") < self.fraction * 2.0**64


def select(round_: RoundSpec, ratings: Mapping[int, float], hold_out: HoldOut, random_bytes: RandomBytes) -> Selection:
    """Return what a device with these ratings brings to a round."""
    known = {item: rating for item, rating in ratings.items() if item < round_.task.items}
    unknown = len(ratings) - len(known)
    if round_.kind == EVALUATE:
        return _select_held_out(round_, known, unknown, hold_out, random_bytes)
    if round_.kind == TRAIN:
        known = {item: rating for item, rating in known.items() if item not in hold_out}
    return _selection(known, unknown)


def _select_held_out(
    round_: RoundSpec, known: Mapping[int, float], unknown: int, hold_out: HoldOut, random_bytes: RandomBytes
) -> Selection:
    capacity = round_.task.capacity
    count = min(MOST_STRANGERS, capacity // 2)
    held = np.array([item for item in known if item in hold_out], dtype=np.int64)
    held = sample(held, capacity - count, random_bytes)  # in random order: the first is the one to be ranked
    strangers = _strangers(round_.task.items, count, known, random_bytes) if held.size else held
    rated = _selection({int(item): known[int(item)] for item in held}, unknown)
    unrated = np.full(strangers.size, np.nan, dtype=np.float32)
    return Selection(
        items=np.concatenate([rated.items, strangers]), values=np.concatenate([rated.values, unrated]), unknown=unknown
    )


def _strangers(items: int, count: int, known: Mapping[int, float], random_bytes: RandomBytes) -> Indices:
    """Return up to `count` items that the device has not rated, without going through the catalogue."""
    drawn = draw_below(np.full(4 * count, items, dtype=np.int64), random_bytes)
    found = dict.fromkeys(item for item in drawn.tolist() if item not in known)
    return np.array(list(found)[:count], dtype=np.int64)


def _selection(known: Mapping[int, float], unknown: int) -> Selection:
    items = np.fromiter(known.keys(), dtype=np.int64, count=len(known))
    values = np.fromiter(known.values(), dtype=np.float32, count=len(known))
    return Selection(items=items, values=values, unknown=unknown)
