"""Samples for the report on quality: seeded, of the stated share, and without people or items that have no ratings."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings, write_as_movielens

from secemb_lab.report.quality_data import (
    PEOPLE,
    RATINGS,
    Source,
    few_people,
    leave_ratings_out,
    sample_people,
    sample_ratings,
)
from secemb_tools.datasets import RatingSet, split_per_user

WHOLE = made_up_ratings(people=50, items=80, count=1_500)
BOTH = pytest.mark.parametrize("sample", [sample_ratings, sample_people])
Sample = Callable[..., RatingSet]


@BOTH
def test_a_seed_decides_a_sample(sample: Sample) -> None:
    first, again, other = (sample(WHOLE, 0.2, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest != other.digest


def test_a_sample_of_ratings_has_their_share() -> None:
    assert sample_ratings(WHOLE, 0.2, seed=1).values.size == round(0.2 * WHOLE.values.size)


def test_a_sample_of_people_has_their_share_and_all_of_their_ratings() -> None:
    found = sample_people(WHOLE, 0.2, seed=1)
    assert found.person_count == 10
    counts, own = np.bincount(WHOLE.people), np.bincount(found.people)
    assert not set(own) - set(counts)
    assert sum(own) == found.values.size


@BOTH
def test_people_and_items_without_ratings_are_left_out(sample: Sample) -> None:
    found = sample(WHOLE, 0.05, seed=3)
    assert np.unique(found.people).size == found.person_count == len(found.user_features) < WHOLE.person_count
    assert np.unique(found.items).size == found.item_count == len(found.item_features) < WHOLE.item_count
    assert (np.diff(found.people) >= 0).all()


def test_a_sample_is_of_the_ratings_themselves() -> None:
    """A rating that occurs once in the set is still between its person's and its item's features."""
    features = [tuple(one) for one in WHOLE.user_features]
    found = sample_people(WHOLE, 0.5, seed=1)
    assert {tuple(one) for one in found.user_features} <= set(features)
    assert sorted(found.values) == sorted(
        value
        for person in np.random.default_rng([1, 31]).permutation(50)[:25]
        for value in WHOLE.values[WHOLE.people == person]
    )


def test_choices_have_no_ratings() -> None:
    found = leave_ratings_out(WHOLE)
    assert found.implicit
    assert set(found.values) == {1.0}
    assert not WHOLE.implicit


def test_a_few_people_keep_all_that_is_held_out_of_them() -> None:
    data = split_per_user(WHOLE, seed=1)
    few = few_people(data, 7, seed=1)
    assert np.unique(few.test.people).size == 7
    assert few.test.values.size == np.isin(data.test.people, few.test.people).sum()
    assert few.train is data.train
    assert few_people(data, 1_000, seed=1).test.digest == data.test.digest


def test_a_source_says_what_it_is_a_sample_of(tmp_path: Path) -> None:
    path = write_as_movielens(WHOLE, tmp_path)
    assert Source(path=path).sample == ""
    assert Source(path=path, of=RATINGS, share=0.05).sample == "5 % of the ratings"
    part = Source(path=path, of=PEOPLE, share=0.2)
    assert part.sample == "20 % of the people"
    data = part.split("random", seed=1)
    assert data.train.person_count == 10
    assert data.test.values.size == round(0.2 * (data.train.values.size + data.test.values.size))
