"""The private part that a device solves: as much of a vector as predicts ratings that it has not seen."""

import numpy as np
import pytest

from secemb_sdk.models.interface import Floats
from secemb_sdk.models.ridge import CAUTION, Penalties, solve_cautiously, solve_ridge

VECTORS = np.array([True] * 4 + [False])


def rows(random: np.random.Generator, count: int) -> Floats:
    """Return vectors of items, and a one for the bias."""
    found = random.normal(0, 0.5, (count, 5)).astype(np.float32)
    found[:, -1] = 1
    return found


def test_the_share_of_the_vector_is_that_of_a_literal_leave_one_out() -> None:
    random = np.random.default_rng(1)
    inputs, diagonal = rows(random, 30), Penalties().diagonal(30, VECTORS)
    targets = (inputs @ [0.9, -0.8, 0.3, 0.0, 0.4] + random.normal(0, 0.8, 30)).astype(np.float32)
    left, still_left = [], []
    for one in range(30):
        others = np.arange(30) != one
        whole = solve_ridge(inputs[others], targets[others], diagonal)
        bias = solve_ridge(inputs[others][:, 4:], targets[others], diagonal[4:])
        left.append(targets[one] - bias[0])
        still_left.append(targets[one] - inputs[one] @ whole)
    said = np.subtract(left, still_left)
    gains = np.array(left) * said
    share = (gains.sum() - CAUTION * np.sqrt(np.square(gains).sum())) / np.square(said).sum()
    assert 0.1 < share < 0.95
    expected = share * solve_ridge(inputs, targets, diagonal)
    expected[4:] += (1 - share) * solve_ridge(inputs[:, 4:], targets, diagonal[4:])
    assert solve_cautiously(inputs, targets, diagonal, VECTORS) == pytest.approx(expected, abs=1e-5)


def test_a_taste_that_is_there_is_found_as_before() -> None:
    random = np.random.default_rng(2)
    inputs, diagonal = rows(random, 60), Penalties().diagonal(60, VECTORS)
    targets = (inputs @ [2.0, -1.0, 1.0, 0.5, 0.5]).astype(np.float32)
    assert solve_cautiously(inputs, targets, diagonal, VECTORS) == pytest.approx(
        solve_ridge(inputs, targets, diagonal), abs=1e-6
    )


def test_noise_gives_a_vector_little_to_learn_from() -> None:
    random, diagonal, cautious, usual = np.random.default_rng(3), Penalties().diagonal(20, VECTORS), 0.0, 0.0
    for _ in range(200):
        inputs, targets = rows(random, 20), random.normal(0, 1, 20).astype(np.float32)
        cautious += np.square(solve_cautiously(inputs, targets, diagonal, VECTORS)[:4]).sum()
        usual += np.square(solve_ridge(inputs, targets, diagonal)[:4]).sum()
    assert cautious < 0.3 * usual


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_ratings_are_enough_to_solve_from(count: int) -> None:
    inputs, diagonal = rows(np.random.default_rng(4), count), Penalties().diagonal(count, VECTORS)
    found = solve_cautiously(inputs, np.full(count, 2.0, np.float32), diagonal, VECTORS)
    assert np.isfinite(found).all()
    assert found[-1] > 0


def test_a_model_without_vectors_is_the_bias_alone() -> None:
    found = solve_cautiously(
        np.ones((3, 1), np.float32), np.array([1, 2, 3], np.float32), np.array([3.0], np.float32), np.array([False])
    )
    assert found == pytest.approx([1.0])
