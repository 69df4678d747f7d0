"""Who rated what, with the features of both; how it is split into training and test, described, and written."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

from secemb_shared.randomness import Indices
from secemb_tools.errors import DatasetError

Features = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingSet:
    """Ratings as three columns; people and items are numbered from zero."""

    name: str
    people: Indices  # (n,)
    items: Indices  # (n,)
    values: Floats  # (n,)
    user_features: Features  # (people, l_x), ones and zeros
    item_features: Features  # (items, l_y)
    times: Indices | None = None  # (n,), seconds, where the set has them

    @property
    def person_count(self) -> int:
        """Return the number of people, with ratings or without."""
        return len(self.user_features)

    @property
    def item_count(self) -> int:
        """Return the number of items, rated or not."""
        return len(self.item_features)

    @property
    def digest(self) -> str:
        """Return a digest of all ratings and features."""
        found = hashlib.sha256()
        for part in (self.people, self.items, self.values, self.user_features, self.item_features):
            found.update(f"{part.dtype.str} {part.shape} ".encode() + part.tobytes())
        return found.hexdigest()

    def only(self, chosen: Indices) -> "RatingSet":
        """Return these ratings of the same people and items, in the order of the person and then of the item."""
        kept = chosen[np.lexsort((self.items[chosen], self.people[chosen]))]
        times = None if self.times is None else self.times[kept]
        return replace(self, people=self.people[kept], items=self.items[kept], values=self.values[kept], times=times)

    def by_person(self) -> list[slice]:
        """Return where each person's ratings are; `only` has put them next to each other."""
        ends = np.searchsorted(self.people, np.arange(self.person_count + 1))
        return [slice(int(begin), int(end)) for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Ratings to train on, and ratings to test with."""

    train: RatingSet
    test: RatingSet


def split(ratings: RatingSet, *, seed: int, test_share: float = 0.2) -> Split:
    """Return a random split of the ratings, the same for the same seed."""
    order = np.random.default_rng([seed, 0]).permutation(ratings.values.size)
    tested = round(test_share * ratings.values.size)
    return Split(train=ratings.only(order[tested:]), test=ratings.only(order[:tested]))


def split_per_user(ratings: RatingSet, *, seed: int, test_share: float = 0.2) -> Split:
    """Return a split with the same share of each person's ratings in the test; at least one is always trained on."""
    rng = np.random.default_rng([seed, 1])
    return _take_out(ratings, lambda own: rng.permutation(own)[: min(round(test_share * own.size), own.size - 1)])


def split_leave_one_out(ratings: RatingSet, *, seed: int) -> Split:
    """Return a split with one rating of each person as the test: the last in time, or any where times are unknown."""
    rng = np.random.default_rng([seed, 2])

    def last(own: Indices) -> Indices:
        if own.size < 2:
            return own[:0]
        if ratings.times is None:
            return own[rng.integers(own.size, size=1)]
        newest = int(np.argmax(ratings.times[own]))
        return own[newest : newest + 1]

    return _take_out(ratings, last)


def _take_out(ratings: RatingSet, choose: Callable[[Indices], Indices]) -> Split:
    """Return the split in which each person's chosen ratings are the test; `choose` gets their places."""
    order = np.argsort(ratings.people, kind="stable")
    ends = np.searchsorted(ratings.people[order], np.arange(ratings.person_count + 1))
    tested = [choose(order[begin:end]) for begin, end in pairwise(ends) if end > begin]
    test = np.concatenate(tested) if tested else np.empty(0, dtype=np.int64)
    rest = np.setdiff1d(np.arange(ratings.values.size), test)
    return Split(train=ratings.only(rest), test=ratings.only(test))


class DatasetSummary(TypedDict):
    """A rating set in numbers."""

    name: str
    people: int
    items: int
    ratings: int
    density: float
    user_features: int
    item_features: int
    lowest: float
    highest: float
    mean_ratings_per_person: float
    suggested_capacity: int


class SplitSummary(TypedDict):
    """How a set was split, with the ratings in each part."""

    how: str
    seed: int
    train: int
    test: int
    out: str


def describe(ratings: RatingSet) -> DatasetSummary:
    """Return the counts of a set; nothing about a single person."""
    per_person = np.bincount(ratings.people, minlength=ratings.person_count)
    return {
        "name": ratings.name,
        "people": ratings.person_count,
        "items": ratings.item_count,
        "ratings": int(ratings.values.size),
        "density": float(ratings.values.size / (ratings.person_count * ratings.item_count)),
        "user_features": int(ratings.user_features.shape[1]),
        "item_features": int(ratings.item_features.shape[1]),
        "lowest": float(ratings.values.min()),
        "highest": float(ratings.values.max()),
        "mean_ratings_per_person": float(per_person.mean()),
        "suggested_capacity": int(np.ceil(np.percentile(per_person, 90))),
    }


def write_split(ratings: RatingSet, out: Path, *, how: str, seed: int, test_share: float) -> SplitSummary:
    """Write train.csv and test.csv, and return how many ratings each has."""
    ways: dict[str, Callable[[RatingSet], Split]] = {
        "random": partial(split, seed=seed, test_share=test_share),
        "per-user": partial(split_per_user, seed=seed, test_share=test_share),
        "leave-one-out": partial(split_leave_one_out, seed=seed),
    }
    if out.exists():
        raise DatasetError(f"{out} exists and is not overwritten; name another --out")
    parts = ways[how](ratings)
    out.mkdir(parents=True)
    for name, part in (("train", parts.train), ("test", parts.test)):
        _write(out / f"{name}.csv", part)
    return {"how": how, "seed": seed, "train": parts.train.values.size, "test": parts.test.values.size, "out": str(out)}


def _write(path: Path, part: RatingSet) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("user,item,rating\n")
        for person, item, value in zip(part.people.tolist(), part.items.tolist(), part.values.tolist(), strict=True):
            file.write(f"{person},{item},{value:g}\n")
