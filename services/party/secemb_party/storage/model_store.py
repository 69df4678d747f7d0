"""The versions of one task's model as files: `<task>/v000007.safetensors`, and beside them the optimiser's memory.

One process writes, any may read. A version never changes: saving it again is nothing if the digest is the same and
an error if not. Server 0 saves the model of a step first and the optimiser's state second. A crash in between leaves
a state that is older than the latest model; the step is then repeated from the model of the state's version (from
version 0 and a fresh optimiser if there is no state yet), and since steps are deterministic the same model comes out.
"""

import re
import threading
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    WeightsError,
)
from secemb_party.storage import files
from secemb_party.storage.files import sync_folder
from secemb_party.storage.model import Floats, Model, OptimiserState, Shape

_MODEL, _STATE, _EXPORT = "secemb/1 model", "secemb/1 optimiser", "secemb/1 export"
_NAME = re.compile(r"v(\d{6,})\.safetensors")
_STATE_NAME = "optimiser.safetensors"
_STATE_TENSORS = 8  # for each number of the model an optimiser may keep a few; this bounds what is read
_RESTORE = "remove it and put in its place the other server's file of this name, or a backup"
_RESTORE_STATE = "remove it and put a backup in its place; without one the optimiser starts anew"
_FORMAT = "give a safetensors file with `rows` and, if the task has a dense part, `dense`, both finite floats"


class ModelStore:
    """The versions of one task's model that this server holds."""

    def __init__(self, directory: Path, task_id: bytes, shape: Shape) -> None:
        if len(task_id) != 32:
            raise WeightsError("task_id must be 32 bytes, the SHA-256 of the task's canonical form")
        self.folder = directory / task_id.hex()
        self._task_id, self._shape = task_id, shape
        self._writing = threading.Lock()

    def save(self, model: Model) -> bytes:
        """Store a version durably and return its digest."""
        self._check(model)
        with self._writing:
            self._save(model)
        return model.digest

    def load(self, version: int) -> Model:
        """Return a version exactly as it was saved."""
        path = self._path(version)
        contents = files.read(path, numbers=self._shape.numbers, types=["F32"], fix=_RESTORE)
        self._check_origin(path, contents, purpose=_MODEL)
        try:
            model = Model(task_id=self._task_id, version=version, **contents.tensors)
            self._check(model)
        except (TypeError, WeightsError) as error:  # a TypeError if the tensors are not just `rows` and `dense`
            raise DamagedFileError(f"{path} does not hold a model of this task; {_RESTORE}") from error
        self._check_sum(path, contents, model.digest, version, _RESTORE)
        return model

    def versions(self) -> list[int]:
        """Return the versions that are here, oldest first."""
        names = self.folder.glob("v*.safetensors")
        found = [int(match[1]) for name in names if (match := _NAME.fullmatch(name.name))]
        return sorted(version for version in set(found) if self._path(version).is_file())

    def latest(self) -> int | None:
        """Return the newest version, or nothing if there is none yet."""
        return max(self.versions(), default=None)

    def prune(self, *, keep: int = 3, protect: Collection[int] = ()) -> list[int]:
        """Remove all but the newest few and the protected versions; return what was removed."""
        if keep < 1:
            raise ValueError("a store keeps at least its latest version")
        with self._writing:
            old = [version for version in self.versions()[:-keep] if version not in protect]
            for version in old:
                self._path(version).unlink(missing_ok=True)
        return old

    def import_weights(self, path: Path) -> Model:
        """Store the weights of a safetensors file as version 0, and return them.

        Float32 is taken bit for bit. Float16 is widened, which is exact, and float64 is rounded to the nearest
        float32, ties to even; what becomes infinite thereby is refused like any infinity. Both are the same on every
        machine, so two servers that import one file have one digest.
        """
        contents = files.read(path, numbers=self._shape.numbers, types=["F16", "F32", "F64"], fix=_FORMAT)
        wanted = {"rows", "dense"} if self._shape.dense else {"rows"}
        if not wanted <= set(contents.tensors) <= {"rows", "dense"}:
            raise WeightsError(f"{path} has not the tensors that are needed, {' and '.join(sorted(wanted))}; {_FORMAT}")
        rows, dense = _float32(contents.tensors["rows"]), _float32(contents.tensors.get("dense", np.empty(0)))
        try:
            model = Model(task_id=self._task_id, version=0, rows=rows, dense=dense)
            self._check(model)
        except WeightsError as error:
            raise WeightsError(f"{path} cannot be imported: {error}; {_FORMAT}") from error
        with self._writing:
            if (self.latest() or 0) > 0:
                raise ModelConflictError("weights are imported before the first round; make a new task for new weights")
            self._save(model)
        return model

    def export(self, version: int, path: Path, *, split_bias: bool = False) -> None:
        """Write a version for serving: `rows` (or `embedding` and, from the last column, `bias`) and any `dense`."""
        model = self.load(version)
        tensors: dict[str, Floats] = {"rows": model.rows}
        if split_bias:
            tensors = {"embedding": model.rows[:, :-1], "bias": model.rows[:, -1]}
        if model.dense.size:
            tensors["dense"] = model.dense
        files.write(path, tensors, self._metadata(_EXPORT, version, model.digest))

    def save_state(self, state: OptimiserState) -> None:
        """Store the optimiser's memory durably, in place of the one before; the model of its version comes first."""
        if state.task_id != self._task_id:
            raise ForeignFileError("this optimiser state belongs to another task; each task has its own optimiser")
        metadata = self._metadata(_STATE, state.version, state.digest)
        with self._writing:
            if state.version not in self.versions():
                raise ModelConflictError("save the model of a step before the state of the optimiser that made it")
            path = self.folder / _STATE_NAME
            files.write(path, state.tensors, metadata | {"kind": state.kind, "steps": str(state.steps)})

    def load_state(self) -> OptimiserState | None:
        """Return the optimiser's memory, or nothing if none was saved."""
        path = self.folder / _STATE_NAME
        if not path.exists():
            return None
        numbers = _STATE_TENSORS * self._shape.numbers
        contents = files.read(path, numbers=numbers, types=["F32"], fix=_RESTORE_STATE)
        self._check_origin(path, contents, purpose=_STATE)
        try:
            state = OptimiserState(
                task_id=self._task_id,
                version=int(contents.metadata["version"]),
                kind=contents.metadata["kind"],
                steps=int(contents.metadata["steps"]),
                tensors=contents.tensors,
            )
            digest = state.digest
        except (KeyError, ValueError) as error:
            raise DamagedFileError(f"{path} does not hold the state of an optimiser; {_RESTORE_STATE}") from error
        self._check_sum(path, contents, digest, state.version, _RESTORE_STATE)
        return state

    def forget_state(self) -> None:
        """Let the optimiser start anew from the next step on."""
        with self._writing:
            (self.folder / _STATE_NAME).unlink(missing_ok=True)
            sync_folder(self.folder)

    def _path(self, version: int) -> Path:
        return self.folder / f"v{version:06d}.safetensors"

    def _save(self, model: Model) -> None:
        files.make_folder(self.folder)
        files.remove_unfinished(self.folder)
        path = self._path(model.version)
        if not path.exists():
            tensors = {"rows": model.rows, "dense": model.dense}
            files.write(path, tensors, self._metadata(_MODEL, model.version, model.digest))
        elif self.load(model.version).digest != model.digest:
            raise ModelConflictError(f"{path} holds another model of this version; a version is never given twice")

    def _metadata(self, purpose: str, version: int, digest: bytes) -> dict[str, str]:
        return {"format": purpose, "task": self._task_id.hex(), "version": str(version), "digest": digest.hex()}

    def _check(self, model: Model) -> None:
        if model.task_id != self._task_id:
            raise WeightsError("this model belongs to another task; each task has its own store")
        if model.shape != self._shape:
            want = self._shape
            raise WeightsError(
                f"the task asks for {want.items} rows of {want.width} numbers and {want.dense} dense ones"
            )

    def _check_origin(self, path: Path, contents: files.Contents, *, purpose: str) -> None:
        metadata = contents.metadata
        if metadata.get("format") != purpose or metadata.get("task") != self._task_id.hex():
            raise ForeignFileError(f"{path} was made for another task or purpose; {_RESTORE}")

    @staticmethod
    def _check_sum(path: Path, contents: files.Contents, digest: bytes, version: int, fix: str) -> None:
        if contents.metadata.get("version") != str(version):
            raise ForeignFileError(f"{path} holds another version than its name says; {fix}")
        if contents.metadata.get("digest") != digest.hex():
            raise DamagedFileError(f"{path} has been altered since it was written; {fix}")


def _float32(values: npt.NDArray[np.floating]) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes infinity, which is refused with all others
        return values.astype(np.float32, copy=False)
