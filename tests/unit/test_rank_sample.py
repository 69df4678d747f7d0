"""Sampling by rank: exactly so many, never a known one, and each as often as its chance says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import seeded

from secemb_sdk.models.rank_sample import SHIFT, sample_by_rank
from secemb_shared.randomness import Indices

KNOWN = st.sets(st.integers(0, 49)).map(lambda found: np.array(sorted(found), dtype=np.int64))


@given(KNOWN, st.integers(0, 60), st.integers(0, 1000))
def test_exactly_so_many_are_drawn_whatever_is_known(known: Indices, count: int, seed: int) -> None:
    found, chances = sample_by_rank(known, items=50, count=count, random_bytes=seeded(seed))
    assert found.size == min(count, 50 - known.size)
    assert (np.diff(found) > 0).all()
    assert not set(found.tolist()) & set(known.tolist())
    assert ((chances > 0) & (chances <= 1)).all()
    assert (np.diff(chances) <= 0).all()


@pytest.mark.parametrize("count", [3, 20, 45])
def test_items_are_drawn_as_often_as_their_chances_say(count: int) -> None:
    known, rounds = np.array([0, 7, 30]), 4000
    drawn, chances = np.zeros(50), np.zeros(50)
    for seed in range(rounds):
        found, chance = sample_by_rank(known, items=50, count=count, random_bytes=seeded(seed))
        drawn[found] += 1
        chances[found] = chance
    assert np.abs(drawn / rounds - chances).max() < 4 * 0.5 / rounds**0.5
    assert chances.sum() == pytest.approx(count)


def test_a_sum_over_the_drawn_divided_by_their_chances_is_right_on_average() -> None:
    known, values = np.array([2, 9]), np.random.default_rng(1).normal(0, 1, 200)
    others = np.delete(np.arange(200), known)
    found = []
    for seed in range(4000):
        drawn, chances = sample_by_rank(known, items=200, count=40, random_bytes=seeded(seed))
        found.append(float((values[drawn] / chances).sum()))
    assert np.mean(found) == pytest.approx(values[others].sum(), abs=5 * np.std(found) / len(found) ** 0.5)


def test_chances_follow_zipfs_law_as_far_as_they_are_below_one() -> None:
    _, chances = sample_by_rank(np.zeros(0, np.int64), items=1000, count=1000, random_bytes=seeded(1))
    assert (chances == 1).all()
    found, chances = sample_by_rank(np.zeros(0, np.int64), items=1000, count=100, random_bytes=seeded(1))
    open_ = chances < 1
    product = chances[open_] * (found[open_] + SHIFT)
    assert product == pytest.approx(product[0])
