"""The guard before the optimiser: what it lets through, what it shortens, and that an attack needs it switched off."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from secemb_party.errors import OptimiserError, StateError
from secemb_party.storage import Model, OptimiserState, Shape, initial_model
from secemb_server0.descent import OPTIMISERS, Adam
from secemb_server0.gradient import Gradient
from secemb_server0.guard import BETA, Guard, row_lengths, whole_length
from secemb_server0.optimiser import Rates

TASK = bytes(range(32))
SHAPE = Shape(items=200, width=5, dense=7)
RATES = Rates(rows=0.02, dense=0.001)
Doubles = npt.NDArray[np.float64]


def a_model(shape: Shape = SHAPE) -> Model:
    return initial_model(TASK, shape, seed=3, scale=0.1, bias_column=True, dense_scale=0.1)


def a_gradient(rng: np.random.Generator, *, size: float = 1.0, shape: Shape = SHAPE) -> Gradient:
    rows = size * rng.standard_normal((shape.items, shape.width)) * (rng.random((shape.items, 1)) < 0.5)
    return Gradient(rows=rows, dense=rng.standard_normal(shape.dense))


def by_hand(lengths: list[float], scales: list[float], multiple: float) -> tuple[list[float], list[float]]:
    """Return the shortened lengths and the next scales, as docs/reference/protocol.md defines them."""
    known = sorted(one for one in scales if one > 0) or sorted(one for one in lengths if one > 0)
    middle = len(known) // 2
    usual = 0.0 if not known else known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    short = [min(n, multiple * max(s, usual)) for n, s in zip(lengths, scales, strict=True)]
    moved = [
        s if n == 0 else m if s == 0 else math.sqrt(BETA * s * s + (1 - BETA) * m * m)
        for n, m, s in zip(lengths, short, scales, strict=True)
    ]
    return short, moved


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), min_size=1, max_size=6), st.floats(1, 20))
def test_the_guard_is_the_definition_written_out(steps: list[list[float]], multiple: float) -> None:
    guard, scales = Guard(multiple), [0.0] * 4
    for given_lengths in steps:
        lengths = [n if n > 1e-30 else 0.0 for n in given_lengths]  # float32 knows nothing smaller
        short, wanted = by_hand(lengths, scales, multiple)
        factors = guard.factors("rows", np.array(lengths))
        found = np.array(lengths) * (1.0 if factors is None else factors.astype(np.float64))
        assert found == pytest.approx(short, rel=1e-6)
        scales = guard.tensors()["rows_scale"].astype(np.float64).tolist()
        assert scales == pytest.approx(wanted, rel=1e-6)


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 70)), elements=st.floats(-1e9, 1e9)))
def test_lengths_are_euclidean_however_many_numbers_there_are(values: Doubles) -> None:
    assert row_lengths(values) == pytest.approx(np.linalg.norm(values, axis=1), rel=1e-12, abs=1e-300)
    assert whole_length(values.reshape(-1)) == pytest.approx([np.linalg.norm(values)], rel=1e-12, abs=1e-300)


def test_a_long_vector_is_measured_in_blocks_and_an_empty_one_has_no_length() -> None:
    values = np.random.default_rng(1).standard_normal(3 * 2**14 + 5)
    assert whole_length(values) == pytest.approx([np.linalg.norm(values)], rel=1e-12)
    assert whole_length(np.empty(0)).size == 0


@pytest.mark.parametrize("kind", list(OPTIMISERS))
def test_what_is_usual_passes_bit_for_bit(kind: str) -> None:
    rng = np.random.default_rng(5)
    steps = [a_gradient(rng) for _ in range(30)]
    models = []
    for guard in (None, Guard(8)):
        optimiser, model = OPTIMISERS[kind](RATES, guard=guard), a_model()
        for step in steps:
            model = optimiser.step(model, step)
        models.append(model)
        assert guard is None or guard.limited == {"rows": 0, "dense": 0}
    assert models[0].digest == models[1].digest


def spoil(gradient: Gradient, rows: slice, size: float) -> Gradient:
    spoiled = gradient.rows[:].copy()
    spoiled[rows] = size
    return Gradient(rows=spoiled, dense=gradient.dense)


def after_an_attack(guard: Guard | None, *, size: float) -> tuple[Model, Model, Adam]:
    """Return the models before and long after one round with gradients far too long, and the optimiser."""
    rng, adam, model = np.random.default_rng(7), Adam(RATES, guard=guard), a_model()
    for _ in range(50):
        model = adam.step(model, a_gradient(rng))
    before = model
    model = adam.step(model, spoil(a_gradient(rng), slice(0, 100), size))
    for _ in range(50):
        model = adam.step(model, a_gradient(rng))
    return before, model, adam


def test_one_spoiled_round_does_not_keep_a_row_from_learning_for_thousands_of_rounds() -> None:
    """Adam divides by the root of the mean square: without the guard, that is the attacker's for a long time."""
    second = {}
    for name, guard in (("guarded", Guard(8)), ("open", None)):
        _, _, adam = after_an_attack(guard, size=1e4)
        moments = adam.state().tensors["rows_second"]
        second[name] = float(np.sqrt(moments[:100].mean() / moments[100:].mean()))
    assert second["guarded"] < 2
    assert second["open"] > 100  # the fault that the guard is there for


def test_a_limited_row_keeps_its_direction_and_has_the_limit_as_its_length() -> None:
    rng, guard = np.random.default_rng(9), Guard(4)
    sgd, model = OPTIMISERS["sgd"](Rates(rows=1.0, dense=0.0), guard=guard), a_model()
    model = sgd.step(model, Gradient(rows=np.ones((200, 5)), dense=np.zeros(7)))
    long = np.ones((200, 5))
    long[3] = rng.standard_normal(5) * 1e6
    moved = sgd.step(model, Gradient(rows=long, dense=np.zeros(7)))
    change = (model.rows[3] - moved.rows[3]).astype(np.float64)
    assert np.linalg.norm(change) == pytest.approx(4 * math.sqrt(5), rel=1e-5)
    assert change / np.linalg.norm(change) == pytest.approx(long[3] / np.linalg.norm(long[3]), abs=1e-4)
    assert guard.limited["rows"] == 1


def test_a_row_that_comes_late_is_limited_by_what_is_usual_in_the_table() -> None:
    guard = Guard(4)
    guard.factors("rows", np.array([1.0, 2.0, 3.0, 0.0]))
    factors = guard.factors("rows", np.array([0.0, 0.0, 0.0, 80.0]))
    assert factors is not None
    assert factors.tolist() == [1.0, 1.0, 1.0, pytest.approx(0.1)]  # 4 times the median, which is 2
    assert guard.tensors()["rows_scale"].tolist() == [1.0, 2.0, 3.0, 8.0]


def test_a_round_without_gradients_changes_no_scale() -> None:
    guard = Guard(4)
    assert guard.factors("rows", np.zeros(3)) is None
    guard.factors("rows", np.array([1.0, 2.0, 0.0]))
    before = guard.tensors()["rows_scale"].copy()
    assert guard.factors("rows", np.zeros(3)) is None
    assert np.array_equal(guard.tensors()["rows_scale"], before)


def test_the_dense_part_is_guarded_as_one_row() -> None:
    sgd = OPTIMISERS["sgd"](Rates(rows=0.0, dense=1.0), guard=Guard(2))
    model = sgd.step(a_model(), Gradient(rows=np.zeros((200, 5)), dense=np.full(7, 1.0)))
    moved = sgd.step(model, Gradient(rows=np.zeros((200, 5)), dense=np.full(7, 100.0)))
    assert model.dense - moved.dense == pytest.approx(np.full(7, 2.0), rel=1e-5)


@pytest.mark.parametrize("kind", list(OPTIMISERS))
def test_a_restart_goes_on_with_the_same_scales(kind: str) -> None:
    rng = np.random.default_rng(11)
    steps = [a_gradient(rng, size=10.0 ** (number % 3)) for number in range(12)]
    whole, model = OPTIMISERS[kind](RATES, guard=Guard(2)), a_model()
    for step in steps:
        model = whole.step(model, step)
    first, cut = OPTIMISERS[kind](RATES, guard=Guard(2)), a_model()
    for step in steps[:5]:
        cut = first.step(cut, step)
    second = OPTIMISERS[kind](RATES, guard=Guard(2))
    second.restore(first.state())
    for step in steps[5:]:
        cut = second.step(cut, step)
    assert cut.digest == model.digest
    # Without its scales it would not have been the same.
    forgetful = OPTIMISERS[kind](RATES, guard=Guard(2))
    state = first.state()
    forgetful.restore(replace(state, tensors={**state.tensors, "rows_scale": np.zeros(200, np.float32)}))
    other = forgetful.step(replace(a_model(), version=5), steps[5])
    third = OPTIMISERS[kind](RATES, guard=Guard(2))
    third.restore(state)
    assert third.step(replace(a_model(), version=5), steps[5]).digest != other.digest


def test_a_state_without_scales_or_with_impossible_ones_is_refused() -> None:
    sgd = OPTIMISERS["sgd"](RATES, guard=Guard(2))
    sgd.step(a_model(), a_gradient(np.random.default_rng(1)))
    good = sgd.state()

    def restored(**changes: npt.NDArray[np.float32]) -> None:
        tensors = {name: one for name, one in {**good.tensors, **changes}.items() if one.size}
        kept = OptimiserState(task_id=TASK, version=1, kind="sgd", steps=1, tensors=tensors)
        optimiser = OPTIMISERS["sgd"](RATES, guard=Guard(2))
        optimiser.restore(kept)
        optimiser.step(replace(a_model(), version=1), a_gradient(np.random.default_rng(2)))

    restored()
    for broken in (np.empty(0), np.full(200, -1.0), np.full(200, np.nan), np.ones((200, 1)), np.ones(199)):
        with pytest.raises(StateError):
            restored(rows_scale=broken.astype(np.float32))
    with pytest.raises(StateError):
        OPTIMISERS["sgd"](RATES).restore(good)  # a task without a guard has no scales


@pytest.mark.parametrize("multiple", [0.0, 0.5, -1.0, math.nan, math.inf, 1e7])
def test_a_multiple_below_one_is_refused(multiple: float) -> None:
    with pytest.raises(OptimiserError, match="multiple"):
        Guard(multiple)
