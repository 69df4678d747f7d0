"""A round on a device: what is uploaded, how the private part moves, and what happens to what cannot be learned."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from tests.unit.sessions import make_task
from tests.unit.tastes import MODELS, Array, Point, Unsolved, point

from secemb_sdk.models import (
    Gradients,
    MatrixFactorisation,
    Model,
    ModelError,
    NotFiniteLossError,
    PartError,
    PrivateState,
    Ratings,
    fit_bound,
    learn,
)
from secemb_sdk.models.ridge import solve_ridge
from secemb_sdk.models.torch import RatingModel
from secemb_shared.errors import OutOfRangeError, SecEmbError
from secemb_shared.messages import TaskSpec

EACH_MODEL = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
Learned = tuple[Array, Array, PrivateState]


def state_of(values: Array) -> PrivateState:
    return PrivateState(values=values, first=np.zeros_like(values), second=np.zeros_like(values))


def learn_at(model: Model, at: Point, state: PrivateState | None = None, *, epochs: int = 1) -> Learned:
    return learn(model, state or state_of(at.private), at.rows, at.dense, at.ratings, rate=0.025, epochs=epochs)


@EACH_MODEL
def test_the_gradients_of_rows_and_dense_part_are_uploaded_as_they_are(model: Model) -> None:
    at = point(model)
    rows, dense, state = learn_at(model, at)
    expected = replace(at, private=state.values).gradients(model)
    assert np.array_equal(rows, expected.rows)
    assert np.array_equal(dense, expected.dense)


def test_the_private_part_moves_as_with_the_adam_of_torch() -> None:
    torch: Any = import_module("torch")
    model = Unsolved(MatrixFactorisation(dimension=4))
    state = state_of(point(model).private)
    theirs = torch.tensor(state.values, requires_grad=True)
    optimiser = torch.optim.Adam([theirs], lr=0.025)
    for seed in range(200):
        at = replace(point(model, seed=seed), private=state.values)
        theirs.grad = torch.from_numpy(at.gradients(model).private)
        optimiser.step()
        state = learn_at(model, at, state)[2]
        assert np.abs(state.values - theirs.detach().numpy()).max() < 2e-5  # 200 steps of rounding
        assert state.steps == seed + 1
        assert state.values.dtype == state.first.dtype == state.second.dtype == np.float32


@EACH_MODEL
def test_several_epochs_upload_the_sum_of_their_gradients_at_the_version_that_was_read(model: Model) -> None:
    model, at = Unsolved(model), point(model)
    state, rows, dense = state_of(at.private), np.zeros_like(at.rows), np.zeros_like(at.dense)
    for _ in range(3):
        by_row, by_dense, state = learn_at(model, at, state)
        rows, dense = rows + by_row, dense + by_dense
    together = learn_at(model, at, epochs=3)
    assert np.array_equal(together[0], rows)
    assert np.array_equal(together[1], dense)
    assert np.array_equal(together[2].values, state.values)
    assert together[2].steps == 3


@EACH_MODEL
def test_learning_makes_the_loss_smaller(model: Model) -> None:
    at = point(model)
    state = state_of(at.private)
    for _ in range(100):
        by_row, by_dense, state = learn_at(model, at, state)
        at = replace(at, rows=at.rows - 0.01 * by_row, dense=at.dense - 0.001 * by_dense)
    assert replace(at, private=state.values).gradients(model).loss < 0.7 * point(model).gradients(model).loss


@EACH_MODEL
def test_two_devices_with_different_private_parts_share_nothing_but_rows_and_dense_part(model: Model) -> None:
    """A device's upload and private part come from its own ratings and private part: another's do not change them."""
    one, other = point(model, seed=1), point(model, seed=2)
    alone = learn_at(model, one)
    learn_at(model, replace(other, rows=one.rows, dense=one.dense))
    again = learn_at(model, one)
    assert all(np.array_equal(*pair) for pair in zip(alone[:2], again[:2], strict=True))
    assert np.array_equal(alone[2].values, again[2].values)


@EACH_MODEL
def test_what_was_given_is_left_as_it_was(model: Model) -> None:
    at, same = point(model), point(model)
    state = state_of(at.private)
    learn_at(model, at, state, epochs=2)
    assert np.array_equal(at.rows, same.rows)
    assert np.array_equal(at.dense, same.dense)
    assert np.array_equal(state.values, same.private)
    assert state.steps == 0
    assert not state.first.any()


@EACH_MODEL
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("part", ["rows", "ratings"])
def test_what_is_not_finite_or_overflows_is_refused_by_name_and_without_numbers(
    model: Model, part: str, value: float
) -> None:
    at = point(model)
    spoilt = at.ratings.values if part == "ratings" else getattr(at, part)
    spoilt.reshape(-1)[1] = value
    with pytest.raises(NotFiniteLossError, match="check the ratings") as caught:
        learn_at(model, at)
    assert isinstance(caught.value, ModelError)
    assert isinstance(caught.value, SecEmbError)
    assert not any(character.isdigit() for character in str(caught.value))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_a_spoilt_private_part_is_refused_unless_it_is_solved_afresh(value: float) -> None:
    for name, model in MODELS.items():
        at, private = point(model), point(model).private
        private[1] = value
        if name in ("ncf", "deepfm"):  # they start from where they were
            with pytest.raises(NotFiniteLossError):
                learn_at(model, replace(at, private=private))
        else:
            assert_same(learn_at(model, replace(at, private=private)), learn_at(model, at))


def assert_same(one: Learned, other: Learned) -> None:
    assert all(np.allclose(*pair, rtol=1e-4, atol=1e-4) for pair in zip(one[:2], other[:2], strict=True))
    assert np.allclose(one[2].values, other[2].values, rtol=1e-4, atol=1e-4)


@EACH_MODEL
def test_a_solved_private_part_is_the_best_for_these_rows(model: Model) -> None:
    at = point(model, count=30)
    # Ratings that follow a taste: of one that is not there, a device takes no more than it is worth (test_ridge).
    taste = np.random.default_rng(0).normal(0, 2, model.private_size).astype(np.float32)
    at = replace(at, ratings=Ratings(at.ratings.items, replace(at, private=taste).scores(model)))
    solved = learn_at(model, at)[2].values
    found = replace(at, private=solved).gradients(model)
    assert found.loss < at.gradients(model).loss
    if isinstance(model, RatingModel) and model.fit_steps > 1:
        return  # a network is not linear: a few linearisations come close
    assert np.abs(found.private).max() < 1e-2
    for direction in np.random.default_rng(0).normal(0, 0.05, (20, solved.size)).astype(np.float32):
        assert replace(at, private=solved + direction).gradients(model).loss > found.loss


@pytest.mark.parametrize("name", ["ncf", "fm", "deepfm"])
def test_a_private_part_is_solved_by_formula_as_by_autograd(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    assert isinstance(model, RatingModel)
    at = point(model, count=30)
    by_formula = model.fit_private(at.rows, at.dense, at.private, at.ratings)
    monkeypatch.setattr(type(model), "_linearise", RatingModel._linearise)
    by_autograd = model.fit_private(at.rows, at.dense, at.private, at.ratings)
    assert np.allclose(by_formula, by_autograd, rtol=1e-3, atol=1e-4)


def test_a_device_that_was_never_in_a_round_is_as_good_as_any_other() -> None:
    model = MODELS["mf, by hand"]
    at, other = point(model, seed=1), point(model, seed=2)
    assert_same(learn_at(model, at), learn_at(model, replace(at, private=other.private)))


@pytest.mark.parametrize("value", [np.nan, 1e25])  # the square of the second overflows in Adam's memory, for good
def test_a_private_gradient_that_would_spoil_the_state_is_refused_even_if_the_loss_is_finite(value: float) -> None:
    class Broken(MatrixFactorisation):
        def gradients(self, rows: Array, dense: Array, private: Array, ratings: Ratings) -> Gradients:
            return replace(super().gradients(rows, dense, private, ratings), private=np.full(5, value, np.float32))

    model = Unsolved(Broken(dimension=4))
    with pytest.raises(NotFiniteLossError):
        learn_at(model, point(model))


def test_learning_takes_at_least_one_epoch() -> None:
    with pytest.raises(ModelError, match="at least one epoch"):
        learn_at(MODELS["mf"], point(MODELS["mf"]), epochs=0)


def test_rows_and_parts_that_do_not_belong_to_the_model_are_refused() -> None:
    model = MODELS["fm"]
    at = point(model)
    for wrong in (
        replace(at, rows=at.rows[1:]),
        replace(at, rows=at.rows[:, 1:]),
        replace(at, dense=at.dense[1:]),
        replace(at, ratings=Ratings(at.ratings.items, at.ratings.values[1:])),
    ):
        with pytest.raises(PartError):
            learn_at(model, wrong)


def test_a_device_begins_with_the_models_first_private_part_and_no_memory() -> None:
    model = MODELS["ncf"]
    state = PrivateState.begin(model, np.random.default_rng(3))
    assert np.array_equal(state.values, model.first_private(np.random.default_rng(3)))
    assert not state.first.any()
    assert not state.second.any()
    assert state.steps == 0


def test_nothing_private_is_shown() -> None:
    at = point(MODELS["mf"])
    shown = repr((state_of(at.private), at.ratings, at.gradients(MODELS["mf"])))
    for number in (*at.private, *at.ratings.values, *at.ratings.items):
        assert str(number) not in shown.replace("steps=0", "")


@pytest.mark.parametrize("bound", [1, 5, 2**20, 2**24 + 1, 2**30 - 1])
@pytest.mark.parametrize("fraction_bits", [0, 12, 16])
def test_a_fitted_update_is_accepted_by_the_task(bound: int, fraction_bits: int) -> None:
    task = make_task(bound=bound, fraction_bits=fraction_bits, cohort=2)
    wild = np.random.default_rng(0).standard_cauchy((50, 5)).astype(np.float32) * np.float32(4 * largest(task))
    with pytest.raises(OutOfRangeError):
        task.ring.encode(wild, bound=task.bound)
    fitted, cut = fit_bound(wild, task)
    assert cut
    task.ring.encode(fitted, bound=task.bound)
    assert fitted.dtype == np.float32
    inside = np.abs(wild) < largest(task) * (1 - 1e-6)
    assert np.array_equal(fitted[inside], wild[inside])
    assert (np.sign(fitted) == np.sign(wild)).all()


def test_an_update_within_the_bound_is_left_alone() -> None:
    task = make_task()
    tame = np.random.default_rng(0).uniform(-largest(task), largest(task), (50, 5)).astype(np.float32)
    fitted, cut = fit_bound(tame, task)
    assert not cut
    assert np.array_equal(fitted, tame)
    assert fit_bound(np.zeros((0, 5), np.float32), task)[1] is False


def largest(task: TaskSpec) -> float:
    return float(task.bound / 2.0**task.fraction_bits)


@pytest.mark.parametrize(("count", "width"), [(0, 3), (1, 65), (62, 65), (63, 65), (500, 65), (3000, 17), (5, 900)])
def test_a_ridge_regression_of_any_size_is_the_least_squares_of_its_penalties_and_errors(
    count: int, width: int
) -> None:
    random = np.random.default_rng(count)
    inputs, targets = random.normal(0, 1, (count, width)).astype(np.float32), random.normal(3, 1, count)
    diagonal = random.uniform(1, 5, width).astype(np.float32)
    with_penalties = np.concatenate([inputs, np.diag(np.sqrt(diagonal))])  # each penalty as one more rating of zero
    expected = np.linalg.lstsq(with_penalties, np.concatenate([targets, np.zeros(width)]), rcond=None)[0]
    found = solve_ridge(inputs, targets.astype(np.float32), diagonal)
    np.testing.assert_allclose(found, expected, atol=1e-4)
