"""Gradients are those of the loss, for every model; rows are of their items, and the private part is nobody else's."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.unit.tastes import FEATURES_OF_ITEMS, MODELS, TORCH_MODELS, Array, Point, machine, point

from secemb_sdk.models import MatrixFactorisation, Model, PartError, PrivateState, Ratings, learn
from secemb_sdk.models.torch import FactorisationMachine, TorchMatrixFactorisation

EACH_MODEL = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
KINDS: list[tuple[type[np.floating[Any]], float]] = [(np.float32, 1e-5), (np.float64, 1e-7)]
EACH_TORCH_MODEL = pytest.mark.parametrize("model", TORCH_MODELS.values(), ids=TORCH_MODELS)


def assert_close(ours: Array, theirs: Array, share: float) -> None:
    """Compare within a share of the largest number, or of one: sums that cancel are no more exact than their terms."""
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max(initial=0) <= share * np.abs(theirs).max(initial=1)


def slopes(model: Model, at: Point, part: str) -> Array:
    """Return the gradient of one part by central differences."""
    values, step = getattr(at, part), 1e-6
    found = np.empty(values.size)
    for index in range(values.size):
        losses = []
        for sign in (1, -1):
            moved = values.copy().reshape(-1)
            moved[index] += sign * step
            losses.append(replace(at, **{part: moved.reshape(values.shape)}).gradients(model).loss)
        found[index] = (losses[0] - losses[1]) / (2 * step)
    return found.reshape(values.shape)


@EACH_TORCH_MODEL
@pytest.mark.parametrize("part", ["rows", "dense", "private"])
def test_gradients_are_the_slopes_of_the_loss(model: Model, part: str) -> None:
    at = point(model, kind=np.float64)
    assert_close(getattr(at.gradients(model), part), slopes(model, at, part), 1e-5)


@pytest.mark.parametrize("count", [0, 1, 7, 40])
@pytest.mark.parametrize("dimension", [1, 4, 64])
def test_gradients_by_hand_are_those_of_autograd(dimension: int, count: int) -> None:
    settings: dict[str, Any] = {"dimension": dimension, "penalty": 0.3, "person_penalty": 2.0, "bias_penalty": 5.0}
    by_hand, by_torch = MatrixFactorisation(**settings), TorchMatrixFactorisation(**settings)
    # float32 as devices compute, and float64 where the rounding of long sums does not hide a small mistake
    for seed, (kind, share) in product(range(20), KINDS):
        at = point(by_hand, count=count, seed=seed, kind=kind)
        ours, theirs = at.gradients(by_hand), at.gradients(by_torch)
        assert ours.loss == pytest.approx(theirs.loss, rel=share)
        for part in ("rows", "private"):
            assert_close(getattr(ours, part), getattr(theirs, part), share)
            assert getattr(ours, part).dtype == kind
        assert_close(at.scores(by_hand), at.scores(by_torch), share)


def test_the_loss_by_hand_is_the_sum_over_ratings_of_squared_errors_and_penalties() -> None:
    model = MatrixFactorisation(dimension=4, penalty=0.1, person_penalty=2.0, bias_penalty=3.0)
    at = point(model, kind=np.float64)
    loss = 2.0 * sum(at.private[:4] ** 2) + 3.0 * at.private[4] ** 2
    for row, value in zip(at.rows, at.ratings.values, strict=True):
        error = at.private[4] + row[4] + sum(at.private[k] * row[k] for k in range(4)) - value
        loss += error**2 + 0.1 * (sum(at.private[:4] ** 2) + sum(row[:4] ** 2))
    assert at.gradients(model).loss == pytest.approx(loss)


@EACH_MODEL
def test_rows_in_another_order_have_the_same_gradients_in_that_order(model: Model) -> None:
    at, order = point(model), np.random.default_rng(1).permutation(7)
    moved = replace(at, rows=at.rows[order], ratings=Ratings(at.ratings.items[order], at.ratings.values[order]))
    before, after = at.gradients(model), moved.gradients(model)
    assert after.loss == pytest.approx(before.loss)
    assert_close(after.rows, before.rows[order], 1e-5)
    assert_close(after.dense, before.dense, 1e-5)
    assert_close(after.private, before.private, 1e-5)
    assert_close(moved.scores(model), at.scores(model)[order], 1e-5)


@EACH_MODEL
def test_the_row_of_an_item_changes_the_score_of_that_item_only(model: Model) -> None:
    at = point(model)
    rows = at.rows.copy()
    rows[2] += 1
    changed = replace(at, rows=rows).scores(model) != at.scores(model)
    assert np.flatnonzero(changed).tolist() == [2]


@EACH_MODEL
def test_scores_are_finite_and_one_for_each_item(model: Model) -> None:
    for count in (0, 1, 7):
        scores = point(model, count=count).scores(model)
        assert scores.shape == (count,)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()


@EACH_MODEL
def test_a_device_without_ratings_changes_no_row_and_its_private_part_stays(model: Model) -> None:
    at = point(model, count=0)
    state = PrivateState(values=at.private, first=np.zeros_like(at.private), second=np.zeros_like(at.private))
    rows, _, state = learn(model, state, at.rows, at.dense, at.ratings, rate=0.1)
    assert rows.shape == (0, model.row_width)
    assert np.array_equal(state.values, at.private)


@EACH_MODEL
def test_arrays_that_are_closed_to_writing_are_taken(model: Model) -> None:
    at, before = point(model), point(model).gradients(model)
    for part in (at.rows, at.dense, at.private, at.ratings.items, at.ratings.values):
        part.flags.writeable = False
    after = at.gradients(model)
    assert np.array_equal(after.rows, before.rows)
    assert np.array_equal(after.private, before.private)


@EACH_MODEL
def test_a_first_private_part_is_small_without_bias_and_another_for_another_device(model: Model) -> None:
    one, other = (model.first_private(np.random.default_rng(seed)) for seed in (1, 2))
    assert one.shape == (model.private_size,)
    assert one.dtype == np.float32
    assert one[-1] == 0
    assert 0 < np.abs(one[:-1]).max() < 0.5
    assert not (one[:-1] == other[:-1]).any()


@EACH_MODEL
def test_parts_of_another_length_are_refused(model: Model) -> None:
    at = point(model)
    for wrong in (
        replace(at, dense=np.zeros(model.dense_size + 1, np.float32)),
        replace(at, private=np.zeros(model.private_size + 1, np.float32)),
    ):
        with pytest.raises(PartError):
            wrong.scores(model)
        with pytest.raises(PartError):
            wrong.gradients(model)


def test_a_factorisation_machine_adds_the_product_of_every_pair() -> None:
    model = machine(FactorisationMachine, dense_penalty=0.0, penalty=0.0)
    at = point(model, count=3, kind=np.float64)
    vectors, weights, bias = at.dense[:32].reshape(8, 4), at.dense[32:40], at.dense[40]
    for item, row, score in zip(at.ratings.items, at.rows, at.scores(model), strict=True):
        set_ = [0, 3] + [5 + f for f in range(3) if FEATURES_OF_ITEMS[item, f]]
        members = [at.private[:4], row[:4], *(vectors[f] for f in set_)]
        pairs = sum(members[a] @ members[b] for b in range(len(members)) for a in range(b))
        assert score == pytest.approx(bias + at.private[4] + row[4] + sum(weights[f] for f in set_) + pairs)


def test_features_that_a_person_does_not_have_get_no_gradient_but_that_of_the_penalty() -> None:
    model = machine(FactorisationMachine, dense_penalty=0.0)
    by_vectors = point(model).gradients(model).dense[:32].reshape(8, 4)
    assert np.flatnonzero(by_vectors.any(axis=1)).tolist() == [0, 3, 5, 6, 7]
