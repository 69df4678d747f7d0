"""The model store: a version is there as a whole or not at all, and what is not exactly it is never taken for it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from tests.unit.stored_models import OTHER_TASK, SHAPE, TASK, file_of, model, note_disk, plant_fault, same, state

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    ModelFileError,
    ModelMissingError,
    WeightsError,
)
from secemb_party.storage import ModelFiles, Shape

# Saving and loading.


@pytest.mark.parametrize("shape", [SHAPE, Shape(items=1, width=1, dense=0), Shape(items=300, width=65, dense=1000)])
def test_what_is_loaded_is_what_was_saved(tmp_path: Path, shape: Shape) -> None:
    saved = model(7, shape=shape)
    digest = ModelFiles(tmp_path, TASK, shape).save(saved)
    loaded = ModelFiles(tmp_path, TASK, shape).load(7)
    assert same(loaded, saved)
    assert loaded.digest == digest == saved.digest
    assert (tmp_path / TASK.hex() / "v000007.safetensors").is_file()


def test_versions_are_counted_by_number(store: ModelFiles) -> None:
    assert store.versions() == []
    for version in (2, 10, 999_999, 1_000_000, 0):
        store.save(model(version))
    for stray in ("v7.safetensors", "v0000010.safetensors", "vabcdef.safetensors", "notes.txt"):
        (store.folder / stray).write_bytes(b"")
    assert store.versions() == [0, 2, 10, 999_999, 1_000_000]


def test_saving_a_version_again_does_nothing(store: ModelFiles) -> None:
    digest = store.save(model(3))
    before = file_of(store, 3).stat()
    assert store.save(model(3)) == digest
    after = file_of(store, 3).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_version_is_never_given_twice(store: ModelFiles) -> None:
    store.save(model(3, seed=1))
    with pytest.raises(ModelConflictError, match=r"v000003\.safetensors"):
        store.save(model(3, seed=2))
    assert same(store.load(3), model(3, seed=1))


def test_a_model_of_another_task_or_shape_is_not_saved(store: ModelFiles) -> None:
    with pytest.raises(WeightsError, match="another task"):
        store.save(model(task_id=OTHER_TASK))
    with pytest.raises(WeightsError, match="7 rows of 3 numbers and 4"):
        store.save(model(shape=Shape(items=7, width=3, dense=5)))
    assert not store.folder.exists()


def test_a_version_that_is_not_there_is_missing(store: ModelFiles) -> None:
    with pytest.raises(ModelMissingError, match=r"v000004\.safetensors"):
        store.load(4)


def test_no_altered_byte_is_taken_for_another_model(store: ModelFiles) -> None:
    store.save(model(1))
    path = file_of(store, 1)
    data = path.read_bytes()
    messages = []
    for position in range(len(data)):
        for mask in (0x01, 0x20, 0xFF):
            altered = bytearray(data)
            altered[position] ^= mask
            path.write_bytes(altered)
            try:
                assert same(store.load(1), model(1))  # such as another blank between two fields of the header
            except ModelFileError as error:
                messages.append(str(error))
    assert len(messages) >= 3 * len(data) - 50
    assert all(str(path) in message for message in messages)


def test_every_truncated_file_is_noticed(store: ModelFiles) -> None:
    store.save(model(1))
    path = file_of(store, 1)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFileError, match="secemb model fetch") as caught:
            store.load(1)
        assert str(path) in str(caught.value)
    path.write_bytes(data + b"\0")
    with pytest.raises(DamagedFileError):
        store.load(1)


def test_a_damaged_version_is_not_silently_replaced(store: ModelFiles) -> None:
    store.save(model(1))
    file_of(store, 1).write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"v000001\.safetensors"):
        store.save(model(1))


def test_a_file_of_another_task_is_noticed(store: ModelFiles, tmp_path: Path) -> None:
    other = ModelFiles(tmp_path, OTHER_TASK, SHAPE)
    other.save(model(1, task_id=OTHER_TASK))
    store.save(model(0))
    file_of(store, 1).write_bytes(file_of(other, 1).read_bytes())
    with pytest.raises(ForeignFileError, match="another task"):
        store.load(1)


def test_a_file_under_the_name_of_another_version_is_noticed(store: ModelFiles) -> None:
    store.save(model(1))
    file_of(store, 1).rename(file_of(store, 2))
    with pytest.raises(ForeignFileError, match="different version"):
        store.load(2)


def test_a_file_that_holds_more_or_other_tensors_is_noticed(store: ModelFiles) -> None:
    good = model(1)
    store.save(good)
    path = file_of(store, 1)
    metadata = {"format": "secemb/1 model", "task": TASK.hex(), "version": "1", "digest": good.digest.hex()}
    tensors: dict[str, npt.NDArray[Any]] = {"rows": good.rows, "dense": good.dense}
    for changed in (
        {"rows": good.rows},
        tensors | {"extra": good.dense},
        tensors | {"rows": good.rows.astype(np.float64)},
        tensors | {"rows": good.rows.T.copy()},
        tensors | {"dense": np.full(4, np.nan, dtype=np.float32)},
        tensors | {"extra": np.zeros(10**6, dtype=np.float32)},
    ):
        save_file(changed, path, metadata)
        with pytest.raises(DamagedFileError):
            store.load(1)
    save_file(tensors, path)
    with pytest.raises(ForeignFileError):
        store.load(1)
    save_file(tensors, path, metadata)
    assert same(store.load(1), good)


def test_a_folder_in_the_place_of_a_file_is_a_typed_error(store: ModelFiles) -> None:
    file_of(store, 1).mkdir(parents=True)
    with pytest.raises(ModelFileError, match="cannot read"):
        store.load(1)
    assert store.versions() == []


def test_a_fault_before_the_rename_leaves_the_store_as_it_was(
    store: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(model(1))
    store.save_state(state(1))
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    with monkeypatch.context() as fault:
        plant_fault(fault)
        with pytest.raises(OSError, match="planted"):
            store.save(model(2))
        with pytest.raises(OSError, match="planted"):
            store.save_state(state(1, seed=2))
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before
    store.save(model(2))
    assert store.versions() == [1, 2]


def test_a_process_killed_before_the_rename_leaves_the_old_version_and_a_leftover_that_the_next_save_removes(
    store: ModelFiles,
) -> None:
    store.save(model(1))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(store.folder.parent), TASK.hex()], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    [leftover] = store.folder.glob(".v000002.*")
    os.utime(leftover, (0, 0))  # long ago: nobody is writing it any more
    reopened = ModelFiles(store.folder.parent, TASK, SHAPE)
    assert reopened.versions() == [1]
    assert same(reopened.load(1), model(1))
    reopened.save(model(2))
    assert sorted(path.name for path in store.folder.iterdir()) == ["v000001.safetensors", "v000002.safetensors"]


KILLED_WHILE_SAVING = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from secemb_party.storage import ModelFiles, Shape, initial_model
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
task, shape = bytes.fromhex(sys.argv[2]), Shape(items=7, width=3, dense=4)
model = replace(initial_model(task, shape, seed=8, scale=1, bias_column=False), version=2)
ModelFiles(Path(sys.argv[1]), task, shape).save(model)
"""


def test_the_file_is_on_the_disk_before_its_name_and_the_name_before_save_returns(
    store: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(model(1))
    events = note_disk(monkeypatch)
    store.save(model(2))
    assert events == ["file", "rename", "folder"]


# Pruning.


def test_the_newest_are_kept_with_their_states_and_older_ones_are_thinned(store: ModelFiles) -> None:
    for version in range(8):
        store.save(model(version))
        store.save_state(state(version, seed=version))
    assert store.prune(keep=2, protect={1, 7, 99}) == [3]
    assert store.versions() == [0, 1, 2, 4, 5, 6, 7]
    for version in range(8):
        kept = store.load_state(version)
        assert (kept is None) == (version == 3)
        assert kept is None or kept.digest == state(version, seed=version).digest
    assert store.prune(keep=2) == [1]
    assert store.prune(keep=2) == []


def test_versions_take_half_of_the_room_and_the_newest_three_stay_whatever_they_take(store: ModelFiles) -> None:
    for version in range(8):
        store.save(model(version))
    each = file_of(store, 0).stat().st_size
    assert store.prune(free=8 * each) == []
    assert store.prune(free=7 * each) != []
    assert store.versions()[-3:] == [5, 6, 7]
    store.prune(free=0)
    assert store.versions() == [5, 6, 7]


def test_the_latest_version_cannot_be_pruned(store: ModelFiles) -> None:
    store.save(model(1))
    with pytest.raises(ValueError, match="latest"):
        store.prune(keep=0)
    assert store.prune(keep=1) == []
