"""Weights that are imported and exported as safetensors files.

A file that is imported or exported has `rows` and, if the task has a dense part, `dense`.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from secemb_party.errors import ModelConflictError, WeightsError
from secemb_party.storage.interfaces import ModelStore
from secemb_party.storage.model import Floats, Model, Shape, check_shape
from secemb_party.storage.tensor_files import read_tensors, write_tensors
from secemb_shared.row_words import published

_EXPORT = "secemb/1 export"
_FORMAT = "provide a safetensors file with `rows` and, if the task has a dense part, `dense`, both finite floats"


def origin(purpose: str, task_id: bytes, version: int, digest: bytes) -> dict[str, str]:
    """Return the metadata that identifies the purpose and origin of a file."""
    return {"format": purpose, "task": task_id.hex(), "version": str(version), "digest": digest.hex()}


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
    machine, so two servers that import one file have one digest. Rows are then rounded to what devices read.
    """
    contents = read_tensors(path, numbers=shape.numbers, types=["F16", "F32", "F64"], fix=_FORMAT)
    wanted = {"rows", "dense"} if shape.dense else {"rows"}
    if not wanted <= set(contents.tensors) <= {"rows", "dense"}:
        raise WeightsError(f"{path} must contain exactly the tensors {' and '.join(sorted(wanted))}; {_FORMAT}")
    rows, dense = _float32(contents.tensors["rows"]), _float32(contents.tensors.get("dense", np.empty(0)))
    try:
        model = Model(task_id=task_id, version=0, rows=published(rows, shape.row_bits), dense=dense)
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
