"""Weights that are imported before the first round, and models that are exported."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file
from tests.unit.stored_models import SHAPE, TASK, model, plant_fault, same

from secemb_party.errors import (
    DamagedFileError,
    ModelConflictError,
    ModelError,
    ModelFileError,
    ModelMissingError,
)
from secemb_party.storage import Floats, ModelFiles, Shape
from secemb_party.storage.weights import export_weights, import_weights

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
        ({"rows": ROWS.reshape(-1), "dense": DENSE}, "two-dimensional"),
        ({"rows": ROWS[:-1], "dense": DENSE}, "7 rows of 3 numbers"),
        ({"rows": ROWS, "dense": DENSE[:-1]}, "4 dense"),
        ({"rows": ROWS}, "dense and rows"),
        ({"dense": DENSE}, "dense and rows"),
        ({"rows": ROWS, "dense": DENSE, "optimiser": DENSE}, "dense and rows"),
        ({"rows": ROWS.astype(np.int32), "dense": DENSE}, "types other than"),
        ({"rows": np.zeros((10**6, 3), dtype=np.float32), "dense": DENSE}, "too large for a model"),
    ],
)
def test_weights_that_cannot_be_are_refused_and_nothing_is_stored(
    store: ModelFiles, tmp_path: Path, tensors: dict[str, npt.NDArray[Any]], reason: str
) -> None:
    path = weights_file(tmp_path / "w.safetensors", **tensors)
    with pytest.raises(ModelError, match=reason) as caught:
        import_weights(store, TASK, SHAPE, path)
    assert str(path) in str(caught.value)
    assert "provide a safetensors file" in str(caught.value)
    assert not store.folder.exists()


def test_a_file_to_import_that_is_missing_or_no_safetensors_is_a_typed_error(store: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError, match="nowhere"):
        import_weights(store, TASK, SHAPE, tmp_path / "nowhere")
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(DamagedFileError, match="not a safetensors file"):
        import_weights(store, TASK, SHAPE, tmp_path / "pickle")
    with pytest.raises(ModelFileError, match="cannot read"):
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
