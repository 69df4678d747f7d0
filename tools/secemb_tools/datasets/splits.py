"""Splits of a rating set into training and test; the same seed gives the same split.

    random           a share of all ratings
    per-user         the same share of each person's ratings
    leave-last-out   each person's last rating, by time, and by position in the file where times are equal or missing
    by-time          the newest ratings, after one point in time for everybody
    given            the publisher's own split (a directory with train and test files)

In `per-user` and `leave-last-out` a person's only rating is trained on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from secemb_shared.catalogue import FILE
from secemb_shared.randomness import Indices
from secemb_tools.datasets.catalogue import write_catalogue
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.errors import DatasetError

TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Ratings to train on, and ratings to test with."""

    train: RatingSet
    test: RatingSet


def split(ratings: RatingSet, *, seed: int, test_share: float = TEST_SHARE) -> Split:
    """Return a random split of the ratings."""
    order = np.random.default_rng([seed, 0]).permutation(ratings.values.size)
    tested = round(test_share * ratings.values.size)
    return Split(train=ratings.only(order[tested:]), test=ratings.only(order[:tested]))


def split_per_user(ratings: RatingSet, *, seed: int, test_share: float = TEST_SHARE) -> Split:
    """Return a split with the same share of each person's ratings in the test; at least one is always trained on."""
    rng = np.random.default_rng([seed, 1])
    order = np.argsort(ratings.people, kind="stable")
    ends = np.searchsorted(ratings.people[order], np.arange(ratings.person_count + 1))
    chosen = [
        rng.permutation(order[begin:end])[: min(round(test_share * (end - begin)), end - begin - 1)]
        for begin, end in pairwise(ends)
        if end > begin
    ]
    return _set_aside(ratings, np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64))


def split_leave_last_out(ratings: RatingSet) -> Split:
    """Return a split with each person's last rating in the test."""
    place = np.arange(ratings.values.size) if ratings.order is None else ratings.order
    order = np.lexsort((place, place if ratings.times is None else ratings.times, ratings.people))
    people = ratings.people[order]
    last = np.append(people[1:] != people[:-1], True)[: order.size]
    first = np.append(True, people[1:] != people[:-1])[: order.size]
    return _set_aside(ratings, order[last & ~first])


def split_by_time(ratings: RatingSet, *, test_share: float = TEST_SHARE) -> Split:
    """Return a split at one point in time, with at most this share in the test; equal times are never split."""
    if ratings.times is None:
        raise DatasetError(f"{ratings.name} has no times; use the split per-user or leave-last-out")
    order = np.argsort(ratings.times, kind="stable")
    last = ratings.times[order[order.size - round(test_share * order.size) - 1]]
    return _set_aside(ratings, np.flatnonzero(ratings.times > last))


def split_given(ratings: RatingSet) -> Split:
    """Return the publisher's own split."""
    if ratings.tested is None:
        raise DatasetError(
            f"{ratings.name} has no split of its own; give a directory with train and test files, or use another split"
        )
    return _set_aside(ratings, np.flatnonzero(ratings.tested))


def _set_aside(ratings: RatingSet, test: Indices) -> Split:
    rest = np.setdiff1d(np.arange(ratings.values.size), test)
    return Split(train=ratings.only(rest), test=ratings.only(test))


WAYS: dict[str, Callable[[RatingSet, int, float], Split]] = {
    "random": lambda ratings, seed, share: split(ratings, seed=seed, test_share=share),
    "per-user": lambda ratings, seed, share: split_per_user(ratings, seed=seed, test_share=share),
    "leave-last-out": lambda ratings, _seed, _share: split_leave_last_out(ratings),
    "by-time": lambda ratings, _seed, share: split_by_time(ratings, test_share=share),
    "given": lambda ratings, _seed, _share: split_given(ratings),
}


class SplitSummary(TypedDict):
    """The kind of a split, with the number of ratings in each part."""

    how: str
    seed: int
    train: int
    test: int
    out: str


def split_by(how: str, ratings: RatingSet, *, seed: int = 1, test_share: float = TEST_SHARE) -> Split:
    """Return the split of this name."""
    if how not in WAYS:
        raise DatasetError(f"unknown split {how!r}; choose one of {', '.join(WAYS)}")
    if not 0 < test_share < 1:
        raise DatasetError(f"a test share of {test_share:g} leaves one part empty; choose one between 0 and 1")
    return WAYS[how](ratings, seed, test_share)


def write_split(ratings: RatingSet, out: Path, *, how: str, seed: int, test_share: float) -> SplitSummary:
    """Write train.csv, test.csv and the catalogue, and return the number of ratings in each part."""
    if out.exists():
        raise DatasetError(f"{out} already exists and will not be overwritten; choose another --out")
    parts = split_by(how, ratings, seed=seed, test_share=test_share)
    out.mkdir(parents=True)
    for name, part in (("train", parts.train), ("test", parts.test)):
        _write(out / f"{name}.csv", part)
    write_catalogue(ratings.catalogue, out / FILE)
    return {"how": how, "seed": seed, "train": parts.train.values.size, "test": parts.test.values.size, "out": str(out)}


def _write(path: Path, part: RatingSet) -> None:
    """Write one part with the original ids; `read_ratings` can read it."""
    import polars as pl

    users = part.user_ids or tuple(map(str, range(part.person_count)))
    items = part.catalogue.ids or tuple(map(str, range(part.item_count)))
    columns: dict[str, object] = {
        "user": pl.Series(users, dtype=pl.String).gather(part.people),
        "item": pl.Series(items, dtype=pl.String).gather(part.items),
        **({} if part.implicit else {"rating": part.values}),
        **({} if part.times is None else {"time": part.times}),
    }
    pl.DataFrame(columns).write_csv(path)
