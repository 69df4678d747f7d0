"""A step that is stored block by block has the same bits as one that is made in memory."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.stored_models import SHAPE, TASK, file_of, model

from secemb_party.errors import ModelConflictError, WeightsError
from secemb_party.storage import MemoryBlob, Model, ModelFiles, Shape, read_all
from secemb_party.storage import tensor_files as tensor_files_module
from secemb_party.storage.publication import mapped, patched, publication
from secemb_server0.descent import OPTIMISERS
from secemb_server0.gradient import Gradient
from secemb_server0.guard import Guard
from secemb_server0.optimiser import Optimiser, Rates

KINDS = sorted(OPTIMISERS)
LARGE = Shape(items=70, width=3, dense=4)


def make(kind: str) -> Optimiser:
    rates = Rates(rows=0.02, dense=0.001, biases=0.05, row_decay=0.01)
    return OPTIMISERS[kind](rates, guard=Guard(2.0))


def gradient(number: int, shape: Shape = LARGE) -> Gradient:
    rng = np.random.default_rng(number)
    rows = rng.standard_normal((shape.items, shape.width)) * (rng.random((shape.items, 1)) < 0.2)
    return Gradient(rows=rows, dense=rng.standard_normal(shape.dense))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("optimiser", "guard"):
        monkeypatch.setattr(f"secemb_server0.{module}._SPAN", 30)
    monkeypatch.setattr("secemb_server0.optimiser._BLOCK", 12)
    monkeypatch.setattr("secemb_party.storage.publication._SPAN", 30)
    monkeypatch.setattr("secemb_party.storage.mapped_arrays._BLOCK", 30)
    monkeypatch.setattr("secemb_party.storage.model._ROWS", 9)
    monkeypatch.setattr(tensor_files_module, "MAPPED", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_step_has_the_bits_of_one_in_memory(kind: str, tmp_path: Path, small_blocks: None) -> None:
    store, current = ModelFiles(tmp_path, TASK, LARGE), model(shape=LARGE)
    store.save(current)
    with pytest.MonkeyPatch.context() as usual:  # whole parts in one block
        for module in ("optimiser", "guard"):
            usual.setattr(f"secemb_server0.{module}._SPAN", 1 << 20)
        usual.setattr("secemb_server0.optimiser._BLOCK", 1 << 14)
        in_memory, states = make(kind), []
        for number in range(66):  # past the 64th step, in which Adam sweeps
            current = in_memory.step(current, gradient(number))
            states.append((current.digest, in_memory.state().digest))
    for number in range(66):
        optimiser, state = make(kind), store.load_state()
        if state is not None:
            optimiser.restore(state, copy=False)
        stored = store.save_step(optimiser.step_in_blocks(store.load(number), gradient(number)))
        found = store.load_state()
        assert found is not None
        assert (stored.digest, found.digest) == states[number]
    fresh = ModelFiles(tmp_path, TASK, LARGE).load(66)
    assert fresh.digest == current.digest
    assert fresh.rows.tobytes() == current.rows.tobytes()


def a_step(store: ModelFiles) -> Any:
    return make("adam").step_in_blocks(store.load(0), gradient(0, SHAPE))


def test_a_crash_between_the_two_files_of_a_step_is_healed_by_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rename, renamed = ModelFiles(tmp_path, TASK, SHAPE), Path.replace, []
    store.save(model())

    def die(path: Path, target: Path) -> Path:
        renamed.append(target.name)
        if len(renamed) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as fault:
        fault.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            store.save_step(a_step(store))
    assert renamed == ["v000001.safetensors", "v000001.optimiser.safetensors"]
    assert (store.versions(), store.load_state()) == ([0, 1], None)
    before = file_of(store, 1).read_bytes()
    store.save_step(a_step(store))
    assert file_of(store, 1).read_bytes() == before
    assert store.load_state() is not None


def test_a_step_never_replaces_a_version_with_other_numbers(tmp_path: Path) -> None:
    store = ModelFiles(tmp_path, TASK, SHAPE)
    store.save(model())
    store.save(model(1, seed=2))
    with pytest.raises(ModelConflictError, match="never reused"):
        store.save_step(a_step(store))
    assert store.load(1).digest == model(1, seed=2).digest
    assert store.load_state() is None


def changed(old: Model, rows: list[int]) -> Model:
    numbers = old.rows.copy()
    numbers[rows] += 1
    return Model(task_id=TASK, version=old.version + 1, rows=numbers, dense=old.dense + 1)


@pytest.mark.parametrize("rows", [[], [0], [69], [3, 9, 10, 11, 40]])
def test_the_changes_of_a_version_make_the_whole_version(rows: list[int], tmp_path: Path, small_blocks: None) -> None:
    store, old = ModelFiles(tmp_path, TASK, LARGE), model(shape=LARGE)
    new = changed(old, rows)
    store.save(old)
    sent = publication(new, old, tmp_path)
    assert sent.changes
    assert sent.body.size == 4 + 16 * len(rows) + 4 * LARGE.dense
    made = store.save_step(patched(store.load(0), 1, new.digest, sent.body))
    assert made.rows.tobytes() == new.rows.tobytes()
    assert made.dense.tobytes() == new.dense.tobytes()
    assert ModelFiles(tmp_path, TASK, LARGE).load(1).digest == new.digest


def test_changes_that_make_another_model_or_none_are_refused(tmp_path: Path) -> None:
    store, old = ModelFiles(tmp_path, TASK, LARGE), model(shape=LARGE)
    store.save(old)
    new = changed(old, [3, 9])
    good = read_all(publication(new, old, tmp_path).body)
    swapped = good[:4] + good[8:12] + good[4:8] + good[12:]
    beyond = good[:8] + (70).to_bytes(4, "little") + good[12:]
    altered = good[:20] + bytes([good[20] ^ 1]) + good[21:]
    for bad in (good[:-1], good + b"\0", swapped, beyond, altered):
        with pytest.raises(WeightsError):
            store.save_step(patched(old, 1, new.digest, MemoryBlob(bad)))
    assert store.versions() == [0]


def test_a_model_in_a_file_is_mapped_and_not_accepted_with_another_length(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(model().encode())
    found = mapped(TASK, 1, SHAPE, path)
    assert found.digest == replace(model(), version=1).digest
    path.write_bytes(model().encode()[:-4])
    with pytest.raises(WeightsError, match="exactly"):
        mapped(TASK, 1, SHAPE, path)


def test_a_pass_over_a_mapped_file_leaves_no_memory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(items=100_000, width=50, dense=0)  # 20 MB
    store = ModelFiles(tmp_path, TASK, shape)
    rows = np.ones((shape.items, shape.width), dtype=np.float32)
    store.save(Model(task_id=TASK, version=0, rows=rows, dense=np.zeros(0, dtype=np.float32)))
    monkeypatch.setattr(tensor_files_module, "MAPPED", 0)

    def mapped_bytes() -> int:
        return int(re.findall(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024

    before = mapped_bytes()
    found = ModelFiles(tmp_path, TASK, shape).load(0)  # reads all of it, for its digest
    assert mapped_bytes() - before < 2**20
    assert float(found.rows.sum()) == rows.size  # and here without releasing it
    assert mapped_bytes() - before > 10 * 2**20
