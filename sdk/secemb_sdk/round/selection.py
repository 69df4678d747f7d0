"""Selects the items that a device uses in a round.

    train      all that it has rated, except held-out ones; if the task has no ratings: a sample of these, and as many
               strangers as there is room for, at least as many as the sample has
    survey     all that it has rated
    evaluate   held-out items; strangers: items it has not rated, to rank the others among; and, in at least half of the
               capacity, items that it trains on, to solve for its private part

If a round does not have room for all items, each session draws a new sample. Items outside the catalogue are omitted
and counted.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats, Ratings, Window
from secemb_sdk.models.scale import Scale
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.measures import count_strangers, most_held_out
from secemb_shared.messages.spec import EVALUATE, SQUARED, TRAIN
from secemb_shared.randomness import Indices, RandomBytes, draw_below, sample

Mask = npt.NDArray[np.bool_]
_BESIDE = 5  # items per chosen one, including it, from which a private part is solved


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Selection:
    """Items and their owner's ratings, standardised for models. Private."""

    items: Indices  # (n,) each once
    values: Floats  # (n,) NaN for strangers
    held_out: Mask  # (n,) those only measured, never learned from
    left_out: int  # items of this device outside the catalogue, and events that do not fit
    window: Window | None = None  # of events

    def ratings_of(self, items: Indices) -> Ratings:
        """Return the ratings of some of these items, in the given order."""
        own = Ratings(self.items, self.values, self.window)
        return own if items is self.items else own.take(self._places(items))

    def are_held_out(self, items: Indices) -> Mask:
        """Tell which of some of these items are held out."""
        return self.held_out[self._places(items)]

    def _places(self, items: Indices) -> Indices:
        order = np.argsort(self.items)
        return order[np.searchsorted(self.items, items, sorter=order)]

    @classmethod
    def of(cls, ratings: Mapping[int, float], unknown: int) -> Self:
        """Return a selection to learn from."""
        items = np.fromiter(ratings.keys(), dtype=np.int64, count=len(ratings))
        values = np.fromiter(ratings.values(), dtype=np.float32, count=len(ratings))
        return cls(items=items, values=values, held_out=np.zeros(items.size, dtype=np.bool_), left_out=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOut:
    """The ratings reserved for evaluation: a keyed hash of the item decides, so that the choice never changes."""

    key: bytes = field(repr=False)
    fraction: float
    names: Mapping[int, int] = field(default_factory=dict, repr=False)  # of items that had other rows in earlier tasks

    def __contains__(self, item: int) -> bool:
        if not self.fraction:
            return False
        name = self.names.get(item, item).to_bytes(8, "little")
        digest = hashlib.blake2b(name, key=self.key, digest_size=8).digest()
        return int.from_bytes(digest, "little") < self.fraction * 2.0**64


def select(round_: RoundSpec, ratings: Mapping[int, float], hold_out: HoldOut, random_bytes: RandomBytes) -> Selection:
    """Return the selection of a device with these ratings."""
    known = _known(round_.task, ratings)
    unknown = len(ratings) - len(known)
    if round_.kind == EVALUATE:
        return _select_to_measure(round_, known, unknown, hold_out, random_bytes)
    if round_.kind == TRAIN:
        to_train = {item: rating for item, rating in known.items() if item not in hold_out}
        if round_.task.loss != SQUARED:
            items, values = among_strangers(round_.task, to_train, known, round_.task.capacity, random_bytes)
            return Selection(items=items, values=values, held_out=np.zeros(items.size, np.bool_), left_out=unknown)
        known = to_train
    return Selection.of(known, unknown)


def among_strangers(
    task: TaskSpec, chosen: Iterable[int], known: Container[int], count: int, random_bytes: RandomBytes
) -> tuple[Indices, Floats]:
    """Return this many items: at most half of them chosen by the owner, with the value 1, and strangers with 0.

    Strangers are not among the known items.
    """
    own = sample(np.array(list(chosen), dtype=np.int64), count // 2, random_bytes)
    others = draw_strangers(task.items, count - own.size, known, random_bytes) if own.size else own
    values = np.concatenate([np.ones(own.size, np.float32), np.zeros(others.size, np.float32)])
    return np.concatenate([own, others]), values


def to_fit(task: TaskSpec, ratings: Mapping[int, float], known: Container[int], random_bytes: RandomBytes) -> Ratings:
    """Return these ratings to solve for a private part; for rankings with strangers, none of them known."""
    own = _known(task, ratings)
    if task.loss != SQUARED:
        return Ratings(*among_strangers(task, own, known, _BESIDE * len(own), random_bytes))
    values = np.fromiter(own.values(), dtype=np.float32, count=len(own))
    return Ratings(np.fromiter(own.keys(), dtype=np.int64, count=len(own)), values)


def _known(task: TaskSpec, ratings: Mapping[int, float]) -> dict[int, float]:
    """Return the ratings of items in the catalogue, standardised for models and clipped to the scale."""
    scale = Scale.of(task)
    lowest, highest = scale.standardise(scale.lowest), scale.standardise(scale.highest)
    return {
        item: min(max(scale.standardise(rating), lowest), highest)
        for item, rating in ratings.items()
        if item < task.items
    }


def _select_to_measure(
    round_: RoundSpec, known: Mapping[int, float], unknown: int, hold_out: HoldOut, random_bytes: RandomBytes
) -> Selection:
    capacity = round_.task.capacity
    count = count_strangers(capacity)
    chosen = np.array([item for item in known if item in hold_out], dtype=np.int64)
    held = sample(chosen, most_held_out(capacity), random_bytes)
    if not held.size:
        return Selection.of({}, unknown)
    strangers = draw_strangers(round_.task.items, count, known, random_bytes)
    rest, count = [item for item in known if item not in hold_out], capacity - held.size - strangers.size
    if round_.task.loss != SQUARED:
        # The fit needs different strangers: those to rank among would rank too low.
        trained, values = among_strangers(
            round_.task, rest, known.keys() | set(strangers.tolist()), count, random_bytes
        )
    else:
        trained = sample(np.array(rest, dtype=np.int64), count, random_bytes)
        values = np.array([known[item] for item in trained.tolist()], dtype=np.float32)
    of_held = np.array([known[item] for item in held.tolist()], dtype=np.float32)
    return Selection(
        items=np.concatenate([held, strangers, trained]),
        values=np.concatenate([of_held, np.full(strangers.size, np.nan, np.float32), values]),
        held_out=np.arange(held.size + strangers.size + trained.size) < held.size,
        left_out=unknown,
    )


def draw_strangers(items: int, count: int, known: Container[int], random_bytes: RandomBytes) -> Indices:
    """Return up to `count` items that the device has not rated, without listing the catalogue."""
    drawn = draw_below(np.full(4 * count, items, dtype=np.int64), random_bytes)
    found = dict.fromkeys(item for item in drawn.tolist() if item not in known)
    return np.array(list(found)[:count], dtype=np.int64)
