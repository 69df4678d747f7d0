"""Splits: nothing is lost or doubled, and each keeps what its name says."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_tools.datasets import RatingSet, Split, split, split_leave_one_out, split_per_user

RATINGS = made_up_ratings(people=40, items=60, count=900)
WAYS = {
    "random": lambda ratings, seed: split(ratings, seed=seed),
    "per user": lambda ratings, seed: split_per_user(ratings, seed=seed),
    "leave one out": lambda ratings, seed: split_leave_one_out(ratings, seed=seed),
}


def pairs(ratings: RatingSet) -> set[tuple[int, int]]:
    return set(zip(ratings.people.tolist(), ratings.items.tolist(), strict=True))


def per_person(ratings: RatingSet) -> list[int]:
    return [int(count) for count in np.bincount(ratings.people, minlength=ratings.person_count)]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_or_doubled_and_a_seed_decides(way: str) -> None:
    one, same, other = (WAYS[way](RATINGS, seed) for seed in (1, 1, 2))
    assert not pairs(one.train) & pairs(one.test)
    assert pairs(one.train) | pairs(one.test) == pairs(RATINGS)
    assert pairs(one.test) == pairs(same.test)
    assert pairs(one.test) != pairs(other.test)


def test_per_user_takes_the_same_share_of_everybody() -> None:
    parts = split_per_user(RATINGS, seed=1, test_share=0.25)
    assert per_person(parts.test) == [round(0.25 * count) for count in per_person(RATINGS)]


def test_leave_one_out_takes_the_last_in_time() -> None:
    times = np.random.default_rng(1).permutation(RATINGS.values.size)
    parts = split_leave_one_out(replace(RATINGS, times=times), seed=1)
    assert per_person(parts.test) == [1] * 40
    assert parts.test.times is not None
    assert parts.train.times is not None
    for person, last in zip(parts.test.people, parts.test.times, strict=True):
        assert (parts.train.times[parts.train.people == person] < last).all()


@pytest.mark.parametrize("way", ["per user", "leave one out"])
def test_whoever_has_one_rating_trains_on_it(way: str) -> None:
    alone = RATINGS.only(np.array([0]))
    parts: Split = WAYS[way](alone, 1)
    assert parts.train.values.size == 1
    assert parts.test.values.size == 0
