"""Weights in safetensors files: named arrays, written atomically and read with a limit on their size and types.

A file that is imported or exported has `rows` and, if the task has a dense part, `dense`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from secemb_party.errors import DamagedFileError, ModelConflictError, ModelFileError, ModelMissingError, WeightsError
from secemb_party.storage.files import write_file
from secemb_party.storage.interfaces import ModelStore
from secemb_party.storage.model import Floats, Model, Shape, check_shape

_EXPORT = "secemb/1 export"
_FORMAT = "provide a safetensors file with `rows` and, if the task has a dense part, `dense`, both finite floats"
Tensors = Mapping[str, npt.NDArray[np.floating]]

_LARGEST_HEADER = 2**20
_open: Callable[..., Any] = safe_open  # untyped in its stub


@dataclass(frozen=True, slots=True, repr=False)
class Contents:
    """The content of a safetensors file."""

    metadata: Mapping[str, str]
    tensors: dict[str, npt.NDArray[Any]]


def write_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str], *, mode: int | None = None) -> None:
    """Write a file that exists completely or not at all."""
    # Safetensors reads the memory of an array directly, and would misread a strided view.
    whole = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    write_file(path, save(whole, dict(metadata)), mode=mode)


def origin(purpose: str, task_id: bytes, version: int, digest: bytes) -> dict[str, str]:
    """Return the metadata that identifies the purpose and origin of a file."""
    return {"format": purpose, "task": task_id.hex(), "version": str(version), "digest": digest.hex()}


def read_tensors(path: Path, *, numbers: int, types: Collection[str], fix: str) -> Contents:
    """Return the content of a file, if it is at most `numbers` numbers of these safetensors types."""
    try:
        if path.stat().st_size > 8 * numbers + _LARGEST_HEADER:
            raise DamagedFileError(f"{path} is too large for a model of this task; {fix}")
        with _open(path, framework="numpy") as file:
            names = list(file.keys())
            if any(file.get_slice(name).get_dtype() not in types for name in names):
                raise DamagedFileError(f"{path} contains tensors of types other than {' or '.join(types)}; {fix}")
            return Contents(file.metadata() or {}, {name: file.get_tensor(name) for name in names})
    except FileNotFoundError as error:
        raise ModelMissingError(f"{path} does not exist; check the name, or restore it from a backup") from error
    except OSError as error:
        raise ModelFileError(f"cannot read {path}; check that it is a file that this user can read") from error
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is truncated, altered or not a safetensors file; {fix}") from error


def import_weights(store: ModelStore, task_id: bytes, shape: Shape, path: Path) -> Model:
    """Store the weights of a file as version 0, and return them."""
    model = read_weights(path, task_id, shape)
    if max(store.versions(), default=0) > 0:
        raise ModelConflictError(
            "weights can only be imported before the first round; create a new task for new weights"
        )
    store.save(model)
    return model


def read_weights(path: Path, task_id: bytes, shape: Shape) -> Model:
    """Return the weights of a file as version 0.

    Float32 is taken bit for bit. Float16 is widened, which is exact, and float64 is rounded to the nearest
    float32, ties to even; a number that becomes infinite is refused like any infinity. Both are the same on every
    machine, so two servers that import one file have one digest.
    """
    contents = read_tensors(path, numbers=shape.numbers, types=["F16", "F32", "F64"], fix=_FORMAT)
    wanted = {"rows", "dense"} if shape.dense else {"rows"}
    if not wanted <= set(contents.tensors) <= {"rows", "dense"}:
        raise WeightsError(f"{path} must contain exactly the tensors {' and '.join(sorted(wanted))}; {_FORMAT}")
    rows, dense = _float32(contents.tensors["rows"]), _float32(contents.tensors.get("dense", np.empty(0)))
    try:
        model = Model(task_id=task_id, version=0, rows=rows, dense=dense)
        check_shape(model, shape)
    except WeightsError as error:
        raise WeightsError(f"{path} cannot be imported: {error}; {_FORMAT}") from error
    return model


def export_weights(model: Model, path: Path, *, split_bias: bool = False) -> None:
    """Write a model for serving: `rows` (or `embedding` and, from the last column, `bias`) and any `dense`."""
    arrays: dict[str, Floats] = {"rows": model.rows}
    if split_bias:
        arrays = {"embedding": model.rows[:, :-1], "bias": model.rows[:, -1]}
    if model.dense.size:
        arrays["dense"] = model.dense
    write_tensors(path, arrays, origin(_EXPORT, model.task_id, model.version, model.digest))


def _float32(values: npt.NDArray[np.floating]) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes infinity, which is refused like any other
        return values.astype(np.float32, copy=False)
