"""The draws made from random bytes."""

import secrets

import numpy as np
import pytest
from tests.unit.sessions import ids, seeded

from secemb_shared.randomness import draw_below, sample, secure_bytes


def test_the_default_source_is_secrets() -> None:
    assert secure_bytes is secrets.token_bytes
    assert draw_below.__defaults__ == sample.__defaults__ == (secrets.token_bytes,)


def test_numbers_lie_below_their_bounds_and_reach_every_value() -> None:
    bounds = np.tile(ids(1, 2, 3, 7), 500)
    drawn = draw_below(bounds, seeded(1)).reshape(-1, 4)
    assert [sorted(set(column.tolist())) for column in drawn.T] == [list(range(bound)) for bound in (1, 2, 3, 7)]


def test_numbers_are_even_over_their_range() -> None:
    counts = np.bincount(draw_below(np.full(60_000, 6, dtype=np.int64), seeded(2)), minlength=6)
    chi_square = float(((counts - 10_000) ** 2 / 10_000).sum())
    assert chi_square < 30  # 5 degrees of freedom: exceeded once in 100,000


def test_numbers_use_all_64_bits() -> None:
    assert draw_below(ids(2**62), lambda count: b"\xff" * count).tolist() == [2**62 - 1]


def test_nothing_can_be_drawn() -> None:
    assert draw_below(ids(), seeded(3)).shape == (0,)
    assert sample(ids(), 5, seeded(3)).shape == (0,)
    assert sample(ids(1, 2), 0, seeded(3)).shape == (0,)


def test_a_sample_has_different_members_of_the_population() -> None:
    population = ids(10, 20, 30, 40, 50)
    for seed in range(50):
        drawn = sample(population, 3, seeded(seed)).tolist()
        assert len(set(drawn)) == 3
        assert set(drawn) <= set(population.tolist())


def test_a_sample_larger_than_the_population_is_all_of_it() -> None:
    assert sorted(sample(ids(1, 2, 3), 9, seeded(4)).tolist()) == [1, 2, 3]


def test_every_order_is_as_likely_as_any_other() -> None:
    orders = [tuple(sample(ids(0, 1, 2), 3, seeded(seed)).tolist()) for seed in range(6000)]
    counts = np.array([orders.count(order) for order in sorted(set(orders))])
    assert counts.size == 6
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 30


@pytest.mark.parametrize("count", [1, 5])
def test_the_same_bytes_give_the_same_draws(count: int) -> None:
    population = np.arange(20, dtype=np.int64)
    assert np.array_equal(sample(population, count, seeded(5)), sample(population, count, seeded(5)))
    assert np.array_equal(draw_below(population + 1, seeded(5)), draw_below(population + 1, seeded(5)))
