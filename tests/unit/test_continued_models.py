"""Version 0 of a successor, and the optimiser's state that goes with it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sessions import make_task

from secemb_party.errors import StateError, WeightsError
from secemb_party.storage import Model, OptimiserState, first_model
from secemb_party.storage.first_version import continued_model
from secemb_server0.gradient import Gradient
from secemb_server0.inherited_state import inherit_state
from secemb_server0.optimiser import INHERITED
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.row_map import RowMap

OLD = make_task(items=6, row_width=3, dense_size=2, capacity=2, bins=2, schedule="constant", initial_scale="0.5")
SOURCES = [4, 0, -1, -2, -3, 1, -1]
ROWS = RowMap(6, np.array(SOURCES))
NEW = replace(OLD, items=7, predecessor=OLD.task_id.hex(), seed=9)
SAME = RowMap(6, np.arange(6))


def gradient(seed: int, rows: int) -> Gradient:
    random = np.random.default_rng(seed)
    return Gradient(rows=random.normal(size=(rows, 3)), dense=random.normal(size=2))


def trained(kind: str, steps: int = 5) -> tuple[Model, OptimiserState]:
    optimiser, model = make_optimiser(replace(OLD, optimiser=kind)), first_model(OLD)
    for step in range(steps):
        model = optimiser.step(model, gradient(step, 6))
    return model, optimiser.state()


def test_kept_rows_keep_their_numbers_and_new_rows_start_as_stated() -> None:
    last, _ = trained("adam")
    first = continued_model(last, NEW, ROWS)
    assert (first.task_id, first.version, first.rows.shape) == (NEW.task_id, 0, (7, 3))
    assert np.array_equal(first.rows[[0, 1, 5]], last.rows[[4, 0, 1]])
    assert np.array_equal(first.rows[[2, 6]], first_model(NEW).rows[[2, 6]])
    assert np.array_equal(first.rows[3], last.rows[[0, 1, 4]].astype(np.float64).mean(axis=0).astype(np.float32))
    assert not first.rows[4].any()
    assert np.array_equal(first.dense, last.dense)
    assert continued_model(last, NEW, ROWS).digest == first.digest


def test_a_mean_of_many_rows_does_not_depend_on_their_new_order() -> None:
    task = make_task(items=9001, row_width=3, dense_size=0)
    last = first_model(task)
    orders = [np.arange(9001), np.random.default_rng(1).permutation(9001)]
    after = replace(task, items=9002, predecessor=task.task_id.hex())
    new = [continued_model(last, after, RowMap(9001, np.append(order, -2))).rows[-1] for order in orders]
    assert np.array_equal(*new)
    assert np.array_equal(new[0], (np.add.accumulate(last.rows.astype(np.float64))[-1] / 9001).astype(np.float32))


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        (NEW, SAME),
        (NEW, RowMap(5, np.array([4, 0, -1, -2, -3, 1, -1]))),
        (replace(NEW, row_width=4), ROWS),
        (replace(NEW, dense_size=3), ROWS),
    ],
)
def test_a_map_between_other_models_is_refused(task: object, rows: RowMap) -> None:
    with pytest.raises(WeightsError):
        continued_model(trained("adam")[0], task, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["adam", "momentum", "sgd"])
def test_a_successor_with_the_same_items_trains_on_as_if_nothing_had_happened(kind: str) -> None:
    last, state = trained(kind)
    task = replace(OLD, optimiser=kind, predecessor=OLD.task_id.hex())
    on, switched = make_optimiser(replace(OLD, optimiser=kind)), make_optimiser(task)
    on.restore(state)
    switched.restore(inherit_state(state, task, SAME))
    model, after = last, continued_model(last, task, SAME)
    for step in range(5, 9):
        model, after = on.step(model, gradient(step, 6)), switched.step(after, gradient(step, 6))
        assert np.array_equal(model.rows, after.rows)
        assert np.array_equal(model.dense, after.dense)
        # Also across restarts, and across another successor.
        again = make_optimiser(task)
        again.restore(switched.state())
        switched = again


def test_kept_rows_keep_their_moments_and_new_rows_begin_at_rest() -> None:
    _, state = trained("adam")
    found = inherit_state(state, NEW, ROWS)
    assert (found.task_id, found.version, found.steps) == (NEW.task_id, 0, 0)
    assert found.tensors[INHERITED].tolist() == [5]
    for name in ("rows_first", "rows_second", "rows_scale"):
        assert np.array_equal(found.tensors[name][[0, 1, 5]], state.tensors[name][[4, 0, 1]])
    new = [2, 3, 4, 6]
    assert not found.tensors["rows_first"][new].any()
    assert not found.tensors["rows_scale"][new].any()
    usual = state.tensors["rows_second"][[0, 1, 4]].astype(np.float64).mean(axis=0).astype(np.float32)
    assert (found.tensors["rows_second"][new] == usual).all()
    twice = inherit_state(replace(found, steps=3), replace(NEW, seed=3), RowMap(7, np.arange(7)))
    assert twice.tensors[INHERITED].tolist() == [8]


def test_the_rates_of_a_successor_begin_with_its_own_rounds() -> None:
    decaying = replace(NEW, schedule="cosine", rounds=10)
    _, state = trained("adam", steps=10)  # all rounds of a predecessor: its rate would now be zero
    optimiser, first = make_optimiser(decaying), continued_model(trained("adam", steps=10)[0], decaying, ROWS)
    optimiser.restore(inherit_state(state, decaying, ROWS))
    assert not np.array_equal(optimiser.step(first, gradient(1, 7)).rows, first.rows)


def test_a_state_that_does_not_fit_is_left_behind() -> None:
    _, state = trained("adam")
    assert not inherit_state(state, replace(NEW, optimiser="sgd"), ROWS).tensors
    assert not inherit_state(None, NEW, ROWS).tensors
    unguarded = {name: values for name, values in state.tensors.items() if not name.endswith("_scale")}
    assert not inherit_state(replace(state, tensors=unguarded), NEW, ROWS).tensors
    assert "rows_scale" not in inherit_state(state, replace(NEW, guard="0"), ROWS).tensors
    wrong = inherit_state(state, NEW, ROWS)
    half = np.array([0.5], dtype=np.float32)
    with pytest.raises(StateError, match="inherited steps"):
        make_optimiser(NEW).restore(replace(wrong, tensors={**wrong.tensors, INHERITED: half}))
