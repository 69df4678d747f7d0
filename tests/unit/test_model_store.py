"""The model store: a version is there as a whole or not at all, and what is not exactly it is never taken for it."""

import hashlib
import os
import re
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    ModelError,
    ModelFileError,
    ModelMissingError,
    WeightsError,
)
from secemb_party.storage import Floats, Model, ModelFiles, OptimiserState, Shape, initial_model
from secemb_party.storage.weights import export_weights, import_weights
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import TaskSpec

TASK, OTHER_TASK = bytes(range(32)), bytes(32)
SHAPE = Shape(items=7, width=3, dense=4)


def model(version: int = 0, *, seed: int = 1, task_id: bytes = TASK, shape: Shape = SHAPE) -> Model:
    drawn = initial_model(task_id, shape, seed=seed, scale=0.01, bias_column=True, dense_scale=0.1)
    return replace(drawn, version=version)


@pytest.fixture
def store(tmp_path: Path) -> ModelFiles:
    return ModelFiles(tmp_path / "models", TASK, SHAPE)


def same(left: Model, right: Model) -> bool:
    return (
        left.version == right.version
        and left.rows.tobytes() == right.rows.tobytes()
        and left.dense.tobytes() == right.dense.tobytes()
    )


def file_of(store: ModelFiles, version: int) -> Path:
    return store.folder / f"v{version:06d}.safetensors"


# What a model is.


def test_the_digest_is_the_hash_that_the_description_says() -> None:
    rows, dense = [[1.0, -2.5], [0.0, 3.25], [-0.0, 1e-40]], [0.5, -1.0]
    known = Model(
        task_id=TASK, version=7, rows=np.array(rows, dtype=np.float32), dense=np.array(dense, dtype=np.float32)
    )
    plain = b"secemb/1 model" + TASK + struct.pack("<QQQQ", 7, 3, 2, 2)
    plain += struct.pack("<6f", *[number for row in rows for number in row]) + struct.pack("<2f", *dense)
    assert known.digest == hashlib.sha256(plain).digest()
    assert known.digest.hex() == "3a8e93eb23c36adf8e1e1e083e5a5627e17db08667c8249c8d53c388e6e836b2"


def test_the_digest_covers_every_part() -> None:
    base = model(3)
    rows, dense = base.rows.copy(), base.dense.copy()
    rows[-1, -1], dense[-1] = 1, 1
    flipped = base.rows.copy()
    flipped[0, -1] = -0.0  # equal as a number, another model in bits
    others = [
        replace(base, version=4),
        replace(base, task_id=OTHER_TASK),
        replace(base, rows=rows),
        replace(base, rows=flipped),
        replace(base, dense=dense),
        replace(base, rows=base.rows.reshape(3, 7)),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 7


def test_the_digest_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    base = model()
    assert replace(base, rows=np.asfortranarray(base.rows)).digest == base.digest


def test_nobody_writes_to_a_model() -> None:
    rows, dense = np.zeros((7, 3), dtype=np.float32), np.zeros(4, dtype=np.float32)
    made = Model(task_id=TASK, version=0, rows=rows, dense=dense)
    for array in (made.rows, made.dense, rows, dense):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    "changes",
    [
        {"task_id": b"short"},
        {"version": -1},
        {"version": 2**53},
        {"rows": np.zeros((7, 3))},
        {"rows": np.zeros(21, dtype=np.float32)},
        {"rows": np.full((7, 3), np.nan, dtype=np.float32)},
        {"dense": np.zeros((2, 2), dtype=np.float32)},
        {"dense": np.full(4, -np.inf, dtype=np.float32)},
    ],
)
def test_what_is_no_model_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(WeightsError):
        replace(model(), **changes)


def test_the_shape_follows_from_the_task() -> None:
    task = TaskSpec(
        name="films",
        items=50,
        row_width=9,
        dense_size=11,
        capacity=10,
        tables=4,
        bins=4,
        ring_bits=32,
        fraction_bits=16,
        bound=2**16,
        cohort=10,
        min_cohort=2,
    )
    assert Shape.of(task) == Shape(items=50, width=9, dense=11)


def test_every_error_is_in_the_tree_of_the_product() -> None:
    for error in (WeightsError, ModelMissingError, ModelConflictError, DamagedFileError, ForeignFileError):
        assert issubclass(error, ModelError)
        assert issubclass(error, SecEmbError)


# Initial weights.


def test_two_servers_with_one_seed_start_from_one_digest(tmp_path: Path) -> None:
    digests = [ModelFiles(tmp_path / name, TASK, SHAPE).save(model(seed=9)) for name in ("server0", "server1")]
    assert digests[0] == digests[1]
    assert model(seed=10).digest != digests[0]


def test_the_initial_weights_of_a_seed_never_change() -> None:
    drawn = initial_model(
        TASK, Shape(items=1000, width=65, dense=33), seed=1, scale=0.01, bias_column=True, dense_scale=0.1
    )
    assert drawn.digest.hex() == "804637ba0538a4e75815dee333d17f71c711d057ce3fe4823405780fce277bad"


def test_the_initial_rows_are_normal_with_the_scale_and_the_bias_is_zero() -> None:
    shape = Shape(items=2000, width=65, dense=5000)
    drawn = initial_model(TASK, shape, seed=3, scale=0.01, bias_column=True, dense_scale=0.5)
    assert not drawn.rows[:, -1].any()
    assert drawn.rows[:, :-1].std() == pytest.approx(0.01, rel=0.02)
    assert abs(drawn.rows[:, :-1].mean()) < 1e-4
    assert drawn.dense.std() == pytest.approx(0.5, rel=0.05)
    assert drawn.version == 0


def test_without_a_bias_every_column_is_drawn_and_the_dense_part_is_zero_unless_asked_for() -> None:
    drawn = initial_model(TASK, SHAPE, seed=3, scale=0.01, bias_column=False)
    assert drawn.rows.all()
    assert not drawn.dense.any()


@pytest.mark.parametrize(
    "changes", [{"seed": -1}, {"scale": -0.1}, {"scale": np.nan}, {"scale": np.inf}, {"dense_scale": np.nan}]
)
def test_a_seed_or_scale_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WeightsError):
        initial_model(TASK, SHAPE, **{"seed": 1, "scale": 0.01, "bias_column": True, **changes})


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
        with pytest.raises(DamagedFileError, match="remove it and put in its place") as caught:
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
    with pytest.raises(ForeignFileError, match="another version"):
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
    with pytest.raises(ModelFileError, match="cannot be read"):
        store.load(1)
    assert store.versions() == []


# Crashes.


def plant_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk fail between the writing of a file and its renaming."""

    def fail(*_: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(Path, "replace", fail)


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
    assert len(list(store.folder.glob(".v000002.*"))) == 1
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
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append("folder" if os.path.isdir(f"/dev/fd/{descriptor}") else "file")
        fsync(descriptor)

    def noted_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        assert path.parent == target.parent
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    store.save(model(2))
    assert events == ["file", "rename", "folder"]


# Pruning.


def test_the_last_three_are_kept_and_what_is_protected(store: ModelFiles) -> None:
    for version in range(8):
        store.save(model(version))
    assert store.prune(protect={1, 7, 99}) == [0, 2, 3, 4]
    assert store.versions() == [1, 5, 6, 7]
    assert store.prune() == [1]
    assert store.prune() == []
    assert store.versions() == [5, 6, 7]


def test_the_latest_version_cannot_be_pruned(store: ModelFiles) -> None:
    store.save(model(1))
    with pytest.raises(ValueError, match="latest"):
        store.prune(keep=0)
    assert store.prune(keep=1) == []


# Import and export.


def weights_file(path: Path, **tensors: npt.NDArray[Any]) -> Path:
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, path)
    return path


def test_imported_weights_are_version_zero_bit_for_bit(store: ModelFiles, tmp_path: Path) -> None:
    wanted = model(0)
    path = weights_file(tmp_path / "w", rows=wanted.rows, dense=wanted.dense)
    assert same(import_weights(store, TASK, SHAPE, path), wanted)
    assert same(store.load(0), wanted)
    assert same(import_weights(store, TASK, SHAPE, path), wanted)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats_become_the_nearest_float32(store: ModelFiles, tmp_path: Path, kind: type[np.floating]) -> None:
    rows, dense = np.full((7, 3), 1 / 3, dtype=kind), np.full(4, 0.1, dtype=kind)
    imported = import_weights(store, TASK, SHAPE, weights_file(tmp_path / "w", rows=rows, dense=dense))
    assert imported.rows[0, 0] == np.float32(kind(1 / 3))
    assert imported.dense[0] == np.float32(kind(0.1))


def test_a_task_without_a_dense_part_needs_only_rows(tmp_path: Path) -> None:
    shape = Shape(items=7, width=3, dense=0)
    imported = import_weights(
        ModelFiles(tmp_path, TASK, shape), TASK, shape, weights_file(tmp_path / "w", rows=model().rows)
    )
    assert imported.dense.size == 0


ROWS, DENSE = np.zeros((7, 3), dtype=np.float32), np.zeros(4, dtype=np.float32)


def spoilt(values: Floats, number: float) -> Floats:
    changed = values.copy()
    changed.reshape(-1)[-1] = number
    return changed


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"rows": spoilt(ROWS, np.nan), "dense": DENSE}, "NaN or infinity"),
        ({"rows": spoilt(ROWS, np.inf), "dense": DENSE}, "NaN or infinity"),
        ({"rows": ROWS, "dense": spoilt(DENSE, np.nan)}, "NaN or infinity"),
        ({"rows": np.full((7, 3), 1e39), "dense": DENSE}, "NaN or infinity"),
        ({"rows": ROWS.astype(np.float16) - np.float16(np.inf), "dense": DENSE}, "NaN or infinity"),
        ({"rows": ROWS.T, "dense": DENSE}, "7 rows of 3 numbers"),
        ({"rows": ROWS.reshape(-1), "dense": DENSE}, "two axes"),
        ({"rows": ROWS[:-1], "dense": DENSE}, "7 rows of 3 numbers"),
        ({"rows": ROWS, "dense": DENSE[:-1]}, "4 dense"),
        ({"rows": ROWS}, "dense and rows"),
        ({"dense": DENSE}, "dense and rows"),
        ({"rows": ROWS, "dense": DENSE, "optimiser": DENSE}, "dense and rows"),
        ({"rows": ROWS.astype(np.int32), "dense": DENSE}, "other types"),
        ({"rows": np.zeros((10**6, 3), dtype=np.float32), "dense": DENSE}, "larger than a model"),
    ],
)
def test_weights_that_cannot_be_are_refused_and_nothing_is_stored(
    store: ModelFiles, tmp_path: Path, tensors: dict[str, npt.NDArray[Any]], reason: str
) -> None:
    path = weights_file(tmp_path / "w.safetensors", **tensors)
    with pytest.raises(ModelError, match=reason) as caught:
        import_weights(store, TASK, SHAPE, path)
    assert str(path) in str(caught.value)
    assert "give a safetensors file" in str(caught.value)
    assert not store.folder.exists()


def test_a_file_to_import_that_is_missing_or_no_safetensors_is_a_typed_error(store: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError, match="nowhere"):
        import_weights(store, TASK, SHAPE, tmp_path / "nowhere")
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(DamagedFileError, match="not a safetensors file"):
        import_weights(store, TASK, SHAPE, tmp_path / "pickle")
    with pytest.raises(ModelFileError, match="cannot be read"):
        import_weights(store, TASK, SHAPE, tmp_path)
    assert not store.folder.exists()


def test_weights_are_imported_only_before_the_first_round(store: ModelFiles, tmp_path: Path) -> None:
    path = weights_file(tmp_path / "w", rows=ROWS, dense=DENSE)
    store.save(model(1))
    with pytest.raises(ModelConflictError, match="before the first round"):
        import_weights(store, TASK, SHAPE, path)
    assert store.versions() == [1]


def test_an_export_can_be_imported(store: ModelFiles, tmp_path: Path) -> None:
    store.save(model(5))
    export_weights(store.load(5), tmp_path / "export.safetensors")
    imported = import_weights(ModelFiles(tmp_path / "other", TASK, SHAPE), TASK, SHAPE, tmp_path / "export.safetensors")
    assert same(imported, model(0))


def test_an_export_for_serving_has_embedding_and_bias(store: ModelFiles, tmp_path: Path) -> None:
    saved = model(5)
    store.save(saved)
    path = tmp_path / "export.safetensors"
    path.write_bytes(b"an older export")
    export_weights(store.load(5), path, split_bias=True)
    tensors = load_file(path)
    assert set(tensors) == {"embedding", "bias", "dense"}
    assert np.array_equal(tensors["embedding"], saved.rows[:, :2])
    assert np.array_equal(tensors["bias"], saved.rows[:, 2])
    assert np.array_equal(tensors["dense"], saved.dense)
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["export.safetensors"]


def test_an_export_that_fails_leaves_the_older_one(
    store: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(model(5))
    path = tmp_path / "export.safetensors"
    path.write_bytes(b"an older export")
    plant_fault(monkeypatch)
    with pytest.raises(OSError, match="planted"):
        export_weights(store.load(5), path)
    assert path.read_bytes() == b"an older export"
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["export.safetensors"]


# The optimiser's memory.


def state(version: int, *, seed: int = 1, task_id: bytes = TASK) -> OptimiserState:
    rng = np.random.default_rng(seed)
    tensors = {"rows_first": rng.random((7, 3), dtype=np.float32), "dense_first": rng.random(4, dtype=np.float32)}
    return OptimiserState(task_id=task_id, version=version, kind="adam", steps=12, tensors=tensors)


def test_a_state_is_loaded_as_it_was_saved(store: ModelFiles) -> None:
    assert store.load_state() is None
    for version in (1, 2):
        store.save(model(version))
        store.save_state(state(version, seed=version))
    loaded = ModelFiles(store.folder.parent, TASK, SHAPE).load_state()
    assert loaded is not None
    assert (loaded.version, loaded.kind, loaded.steps) == (2, "adam", 12)
    assert loaded.digest == state(2, seed=2).digest
    assert store.versions() == [1, 2]


def test_a_state_without_tensors_can_be_kept(store: ModelFiles) -> None:
    store.save(model(1))
    store.save_state(OptimiserState(task_id=TASK, version=1, kind="sgd", steps=1, tensors={}))
    loaded = store.load_state()
    assert loaded is not None
    assert loaded.tensors == {}


def test_a_state_is_saved_after_its_model_and_in_its_task(store: ModelFiles) -> None:
    store.save(model(1))
    with pytest.raises(ModelConflictError, match="before the state"):
        store.save_state(state(2))
    with pytest.raises(ForeignFileError, match="another task"):
        store.save_state(state(1, task_id=OTHER_TASK))
    assert store.load_state() is None


def test_no_altered_byte_is_taken_for_another_state(store: ModelFiles) -> None:
    store.save(model(1))
    store.save_state(state(1))
    path = store.folder / "optimiser.safetensors"
    data = path.read_bytes()
    messages = []
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 0x01
        path.write_bytes(altered)
        try:
            loaded = store.load_state()
            assert loaded is not None
            assert (loaded.version, loaded.kind, loaded.steps) == (1, "adam", 12)
            assert loaded.digest == state(1).digest
        except ModelFileError as error:
            messages.append(str(error))
    assert len(messages) >= len(data) - 20
    assert all(re.search(r"optimiser\.safetensors .*; remove it", message) for message in messages)


def test_a_model_in_the_place_of_a_state_is_noticed(store: ModelFiles) -> None:
    store.save(model(1))
    (store.folder / "optimiser.safetensors").write_bytes(file_of(store, 1).read_bytes())
    with pytest.raises(ForeignFileError):
        store.load_state()
