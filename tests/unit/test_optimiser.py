"""Adam and SGD: the same as torch.optim, the same after a restart, and unmoved by a bad gradient."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secemb_party.errors import GradientError, OptimiserError, StateError
from secemb_party.storage import Model, ModelFiles, OptimiserState, Shape, initial_model
from secemb_server0 import optimiser as optimiser_module
from secemb_server0.descent import OPTIMISERS, Adam
from secemb_server0.gradient import Gradient
from secemb_server0.optimiser import Optimiser, Rates
from secemb_shared.ring import Ring

Array = npt.NDArray[Any]

TASK = bytes(range(32))
SHAPE = Shape(items=60, width=5, dense=40)
LONG = Shape(items=7001, width=5, dense=16385)  # more than one block, and no whole number of them
ROW_RATE, DENSE_RATE = 0.025, 0.002
KINDS = ["adam", "momentum", "sgd"]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return import_module("torch")  # by name, so that the types are the same whether or not it is installed


def make(kind: str) -> Optimiser:
    return OPTIMISERS[kind](Rates(rows=ROW_RATE, dense=DENSE_RATE))


def first_model(shape: Shape = SHAPE) -> Model:
    return initial_model(TASK, shape, seed=5, scale=0.1, bias_column=True, dense_scale=0.1)


def gradients(shape: Shape = SHAPE) -> Iterator[Gradient]:
    """Yield gradients without end; most rows are exactly zero, as in a round, the others differ by four decades."""
    rng = np.random.default_rng(0)
    while True:
        sizes = 10.0 ** rng.uniform(-3, 1, (shape.items, 1)) * (rng.random((shape.items, 1)) < 0.2)
        rows = rng.standard_normal((shape.items, shape.width)) * sizes
        yield Gradient(rows=rows, dense=rng.standard_normal(shape.dense))


def zero_gradient(shape: Shape = SHAPE) -> Gradient:
    return Gradient(rows=np.zeros((shape.items, shape.width)), dense=np.zeros(shape.dense))


def once_then_nothing(steps: int) -> list[Gradient]:
    return [next(gradients()), *[zero_gradient()] * (steps - 1)]


def run(optimiser: Optimiser, model: Model, steps: list[Gradient]) -> Model:
    for gradient in steps:
        model = optimiser.step(model, gradient)
    return model


def run_torch(torch: ModuleType, kind: str, model: Model, steps: list[Gradient]) -> tuple[list[Array], Any]:
    """Return rows and dense part after these steps of torch.optim in float32, and torch's optimiser."""
    parts = [torch.tensor(values, requires_grad=True) for values in (model.rows, model.dense)]
    groups = [{"params": [part], "lr": rate} for part, rate in zip(parts, (ROW_RATE, DENSE_RATE), strict=True)]
    momentum = {"momentum": 0.9} if kind == "momentum" else {}
    optimiser = (torch.optim.Adam if kind == "adam" else torch.optim.SGD)(groups, **momentum)
    for gradient in steps:
        for part, slope in zip(parts, (gradient.rows, gradient.dense), strict=True):
            part.grad = torch.tensor(slope, dtype=torch.float32)
        optimiser.step()
    return [part.detach().numpy() for part in parts], [optimiser.state[part] for part in parts]


def assert_same(ours: Array, theirs: Array) -> None:
    """Compare within 1e-6 of the largest number: next to zero, rounding alone is larger than any smaller share."""
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 10, 64, 500])
def test_steps_are_those_of_torch(torch: ModuleType, kind: str, count: int) -> None:
    steps = list(islice(gradients(), count))
    model = run(make(kind), first_model(), steps)
    (rows, dense), _ = run_torch(torch, kind, first_model(), steps)
    assert_same(model.rows, rows)
    assert_same(model.dense, dense)
    assert model.version == count


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_torch_across_blocks(torch: ModuleType, kind: str) -> None:
    steps = list(islice(gradients(LONG), 5))
    model = run(make(kind), first_model(LONG), steps)
    (rows, dense), _ = run_torch(torch, kind, first_model(LONG), steps)
    assert_same(model.rows, rows)
    assert_same(model.dense, dense)


def test_the_moments_are_those_of_torch(torch: ModuleType) -> None:
    steps = list(islice(gradients(), 200))
    adam = make("adam")
    run(adam, first_model(), steps)
    _, (rows, dense) = run_torch(torch, "adam", first_model(), steps)
    state = adam.state()
    assert state.steps == int(rows["step"]) == 200
    for name, theirs in (("rows", rows), ("dense", dense)):
        assert_same(state.tensors[f"{name}_first"], theirs["exp_avg"].numpy())
        assert_same(state.tensors[f"{name}_second"], theirs["exp_avg_sq"].numpy())


def test_rows_without_a_gradient_move_by_momentum_as_in_torch(torch: ModuleType) -> None:
    steps, before = once_then_nothing(20), first_model()
    after_one, after_all = run(make("adam"), before, steps[:1]), run(make("adam"), before, steps)
    touched = np.abs(steps[0].rows[:]).max(axis=1) > 0
    (rows, _), _ = run_torch(torch, "adam", before, steps)
    assert (after_all.rows[touched] != after_one.rows[touched]).all()
    assert np.array_equal(after_all.rows[~touched], before.rows[~touched])
    assert_same(after_all.rows - before.rows, rows - before.rows)


def test_moments_that_have_died_away_are_zero_and_the_weights_are_still_those_of_torch(torch: ModuleType) -> None:
    steps = once_then_nothing(1024)
    adam = make("adam")
    model = run(adam, first_model(), steps)
    (rows, dense), _ = run_torch(torch, "adam", first_model(), steps)
    assert_same(model.rows, rows)
    assert_same(model.dense, dense)
    assert not adam.state().tensors["rows_first"].any()
    assert adam.state().tensors["rows_second"].any()


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_has_its_own_rate(kind: str) -> None:
    before = first_model()
    gradient = Gradient(rows=np.ones_like(before.rows, np.float64), dense=np.ones_like(before.dense, np.float64))
    after = make(kind).step(before, gradient)
    assert_same(before.rows - after.rows, np.full_like(before.rows, ROW_RATE))
    np.testing.assert_allclose(before.dense - after.dense, DENSE_RATE, rtol=1e-5)


def test_a_rate_of_zero_leaves_its_part_alone() -> None:
    before = first_model()
    after = Adam(Rates(rows=0.1, dense=0)).step(before, next(gradients()))
    assert np.array_equal(after.dense, before.dense)
    assert not np.array_equal(after.rows, before.rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_makes_the_next_version_and_leaves_the_old_one_untouched(kind: str) -> None:
    before, twin = first_model(), first_model()
    after = make(kind).step(before, next(gradients()))
    assert (before.version, after.version) == (0, 1)
    assert np.array_equal(before.rows, twin.rows)
    assert np.array_equal(before.dense, twin.dense)
    assert after.digest != before.digest


def test_a_model_without_a_dense_part_can_be_moved() -> None:
    shape = Shape(items=4, width=2, dense=0)
    for kind in KINDS:
        assert make(kind).step(first_model(shape), next(gradients(shape))).dense.size == 0


def test_the_mean_is_the_decoded_sum_over_the_sessions() -> None:
    ring = Ring(bits=32, fraction_bits=16)
    rows, dense = ring.encode(np.array([[1.5, -3.0]])), ring.encode(np.array([0.25]))
    mean = Gradient.mean(ring, rows=rows, dense=dense, sessions=4)
    assert mean.rows[:].tolist() == [[0.375, -0.75]]
    assert mean.dense.tolist() == [0.0625]
    assert mean.rows.dtype == mean.dense.dtype == np.float64
    with pytest.raises(GradientError):
        Gradient.mean(ring, rows=rows, dense=dense, sessions=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_from_the_saved_state_goes_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    store = ModelFiles(tmp_path, TASK, SHAPE)
    steps = list(islice(gradients(), 150))
    whole = run(make(kind), first_model(), steps)
    optimiser = make(kind)
    middle = run(optimiser, first_model(), steps[:70])
    store.save(middle)
    store.save_state(optimiser.state())
    restarted, state = make(kind), ModelFiles(tmp_path, TASK, SHAPE).load_state()
    assert state is not None
    restarted.restore(state)
    assert run(restarted, store.load(state.version), steps[70:]).digest == whole.digest


def test_a_crash_between_model_and_state_is_healed_by_repeating_the_step(tmp_path: Path) -> None:
    store = ModelFiles(tmp_path, TASK, SHAPE)
    adam, steps = make("adam"), list(islice(gradients(), 3))
    for gradient in steps[:2]:
        model = adam.step(store.load(store.versions()[-1]) if store.versions() else first_model(), gradient)
        store.save(model)
        store.save_state(adam.state())
    digest = store.save(adam.step(model, steps[2]))  # and here the server dies
    state = store.load_state()
    assert state is not None
    assert (state.version, store.versions()[-1]) == (2, 3)
    restarted = make("adam")
    restarted.restore(state)
    with pytest.raises(StateError, match="does not belong to this model"):
        restarted.step(store.load(3), steps[2])
    assert store.save(restarted.step(store.load(2), steps[2])) == digest


def test_a_state_is_a_copy() -> None:
    adam = make("adam")
    model = adam.step(first_model(), next(gradients()))
    state = adam.state()
    digest = state.digest
    adam.step(model, next(gradients()))
    assert state.digest == digest
    restored = make("adam")
    restored.restore(state)
    restored.step(model, next(gradients()))
    assert state.digest == digest


BAD_NUMBERS = [np.nan, np.inf, -np.inf, 1e200, 2.0**64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["rows", "dense"])
@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_a_gradient_that_is_not_finite_changes_nothing(kind: str, part: str, number: float) -> None:
    optimiser, undisturbed = make(kind), make(kind)
    steps = list(islice(gradients(), 2))
    model = optimiser.step(first_model(), steps[0])
    before = optimiser.state().digest
    bad = replace(steps[1], **{part: getattr(steps[1], part).copy()})
    getattr(bad, part).reshape(-1)[-1] = number
    with pytest.raises(GradientError, match="finite"):
        optimiser.step(model, bad)
    assert optimiser.state().digest == before
    assert optimiser.step(model, steps[1]).digest == run(undisturbed, first_model(), steps).digest


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_of_another_shape_or_type_is_refused(kind: str) -> None:
    good, optimiser = next(gradients()), make(kind)
    whole: Any = good.rows[:]
    others: list[Any] = [whole[:-1], whole[:, :-1], whole.reshape(-1), whole.astype(np.float32)]
    for rows in others:
        with pytest.raises(GradientError, match="float64"):
            optimiser.step(first_model(), Gradient(rows=rows, dense=good.dense))
    with pytest.raises(GradientError, match="float64"):
        optimiser.step(first_model(), Gradient(rows=good.rows, dense=good.dense[1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_cut_short_must_be_repeated_from_the_saved_state(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimiser, steps = make(kind), list(islice(gradients(), 2))
    model = optimiser.step(first_model(), steps[0])
    state = optimiser.state()

    def die(*_: object, **__: object) -> Model:
        raise MemoryError

    with monkeypatch.context() as fault:
        fault.setattr(optimiser_module, "replace", die)
        with pytest.raises(MemoryError):
            optimiser.step(model, steps[1])
    with pytest.raises(StateError, match="interrupted"):
        optimiser.step(model, steps[1])
    with pytest.raises(StateError, match="interrupted"):
        optimiser.state()
    optimiser.restore(state)
    assert optimiser.step(model, steps[1]).digest == run(make(kind), first_model(), steps).digest


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model_is_not_stepped_from_twice(kind: str) -> None:
    optimiser, model = make(kind), first_model()
    optimiser.step(model, next(gradients()))
    with pytest.raises(StateError, match="does not belong to this model"):
        optimiser.step(model, next(gradients()))


def test_a_model_of_another_task_is_refused() -> None:
    adam = make("adam")
    model = adam.step(first_model(), next(gradients()))
    with pytest.raises(StateError, match="does not belong to this model"):
        adam.step(replace(model, task_id=bytes(32)), next(gradients()))


def adam_state(**changes: Any) -> OptimiserState:
    adam = make("adam")
    adam.step(first_model(), next(gradients()))
    return replace(adam.state(), **changes)


def with_tensor(name: str, values: Array | None) -> OptimiserState:
    tensors = dict(adam_state().tensors)
    del tensors[name]
    return adam_state(tensors=tensors if values is None else tensors | {name: values})


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (adam_state(kind="sgd"), "for the optimiser"),
        (with_tensor("rows_first", None), "the moments of this optimiser"),
        (with_tensor("rows_first", np.zeros((3, 3), np.float32)), "same shape"),
        (with_tensor("dense_second", np.zeros(SHAPE.dense)), "float32"),
        (with_tensor("dense_first", np.full(SHAPE.dense, np.nan, np.float32)), "finite"),
        (with_tensor("dense_second", np.full(SHAPE.dense, -1, np.float32)), "must not be negative"),
    ],
)
def test_a_state_that_is_not_in_order_is_refused_and_changes_nothing(state: OptimiserState, reason: str) -> None:
    adam = make("adam")
    model = adam.step(first_model(), next(gradients()))
    before = adam.state().digest
    with pytest.raises(StateError, match=reason):
        adam.restore(state)
    assert adam.state().digest == before
    adam.step(model, next(gradients()))


def test_a_state_for_another_shape_is_refused() -> None:
    adam = make("adam")
    adam.restore(adam_state())
    other = Shape(items=61, width=5, dense=40)
    model = replace(first_model(other), version=1)
    with pytest.raises(StateError, match="different shape"):
        adam.step(model, next(gradients(other)))


def test_plain_gradient_descent_refuses_moments() -> None:
    with pytest.raises(StateError, match="the moments of this optimiser"):
        make("sgd").restore(adam_state(kind="sgd"))


def test_there_is_no_state_before_the_first_step() -> None:
    with pytest.raises(StateError, match="first step"):
        make("adam").state()


@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf"), 1e7])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    good: dict[str, Any] = {"rows": 0.1, "dense": 0.1, "biases": 0.1, "row_decay": 0.1, "bias_decay": 0.1}
    for name in good:
        with pytest.raises(OptimiserError, match="rate"):
            Rates(**good | {name: rate})


@pytest.mark.parametrize(
    ("betas", "eps"), [((1.0, 0.9), 1e-8), ((0.9, -0.1), 1e-8), ((0.9, float("nan")), 1e-8), ((0.9, 0.999), 0.0)]
)
def test_betas_and_eps_that_cannot_be_are_refused(betas: tuple[float, float], eps: float) -> None:
    with pytest.raises(OptimiserError, match="betas"):
        Adam(Rates(rows=0.1, dense=0.1), betas=betas, eps=eps)


DECAYING = Rates(rows=0.02, dense=0.01, biases=0.1, row_decay=0.3, bias_decay=0.2, rounds=40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [SHAPE, LONG])
def test_biases_decay_and_schedule_are_those_of_torch(torch: ModuleType, kind: str, shape: Shape) -> None:
    steps, model = list(islice(gradients(shape), 10)), first_model(shape)
    ours = run(OPTIMISERS[kind](DECAYING), model, steps)
    parts = [torch.tensor(part) for part in (model.rows[:, :-1], model.rows[:, -1], model.dense)]
    rates = [0.02, 0.1, 0.01]
    groups = [{"params": [part], "lr": rate} for part, rate in zip(parts, rates, strict=True)]
    settings = {"momentum": 0.9} if kind == "momentum" else {}
    theirs = (torch.optim.Adam if kind == "adam" else torch.optim.SGD)(groups, **settings)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=40)
    for gradient in steps:
        parts[0].grad = torch.tensor(gradient.rows[:][:, :-1], dtype=torch.float32) + 0.3 * parts[0]
        parts[1].grad = torch.tensor(gradient.rows[:][:, -1], dtype=torch.float32) + 0.2 * parts[1]
        parts[2].grad = torch.tensor(gradient.dense, dtype=torch.float32)
        theirs.step()
        schedule.step()
    for mine, other in zip((ours.rows[:, :-1], ours.rows[:, -1], ours.dense), parts, strict=True):
        assert np.abs(mine - other.numpy()).max() <= 1e-5 * np.abs(other.numpy()).max()


def test_rates_fall_to_nothing_after_the_last_round_and_stay_there() -> None:
    shares = [DECAYING.share(steps) for steps in (0, 20, 40, 50)]
    assert shares == pytest.approx([1, 0.5, 0, 0])
    assert replace(DECAYING, rounds=None).share(1000) == 1
