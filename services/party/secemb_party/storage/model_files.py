"""The versions of one task's model as files: `<task>/v000007.safetensors`, each next to its optimiser state.

One process writes, any may read. A version never changes: saving it again does nothing if the digest is the same, and
is an error otherwise. Server 0 saves the model of a step first and the optimiser's state second. A crash in between
leaves a state that is older than the latest model; the step is then repeated from the model of the state's version
(from version 0 and a fresh optimiser if there is no state yet), with the same result, because steps are deterministic.
A state without steps and tensors is a fresh optimiser, either requested by the operator or after a rollback to a
version whose own state is no longer here.
"""

import re
import shutil
import threading
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    StorageUnavailableError,
    WeightsError,
)
from secemb_party.room import VERSIONS
from secemb_party.storage import files
from secemb_party.storage.files import whole_file
from secemb_party.storage.model import Model, ModelStep, OptimiserState, Shape, check_shape, check_task_id
from secemb_party.storage.retention import choose_kept
from secemb_party.storage.step_files import write_step
from secemb_party.storage.tensor_files import Contents, Identity, read_tensors, write_tensors
from secemb_party.storage.weights import origin

_MODEL, _STATE = "secemb/1 model", "secemb/1 optimiser"
_NAME = re.compile(r"v(\d{6,})\.safetensors")
_STATE_NAME = re.compile(r"v(\d{6,})\.optimiser\.safetensors")
_STATE_TENSORS = 8  # an optimiser may keep a few numbers per number of the model; this limits what is read
_CONFLICT = "{} contains a different model for this version; versions are never reused"
_RESTORE = "run `secemb model fetch` to copy it from the other server, or restore a backup"
_RESTORE_STATE = "restore a backup, or reset the optimiser with `secemb model reset-optimiser`"


def version_name(version: int) -> str:
    """Return the name of the file of a version."""
    return f"v{version:06d}.safetensors"


def state_name(version: int) -> str:
    """Return the name of the file with the optimiser's state at a version."""
    return f"v{version:06d}.optimiser.safetensors"


class ModelFiles:
    """The versions of one task's model that this server holds."""

    def __init__(self, directory: Path, task_id: bytes, shape: Shape) -> None:
        check_task_id(task_id)
        self.folder = directory / task_id.hex()
        self._task_id, self._shape = task_id, shape
        self._writing = threading.Lock()
        self._checked: dict[Path, tuple[Identity, bytes]] = {}  # large files, and the digests that they have

    def save(self, model: Model) -> bytes:
        """Store a version durably and return its digest."""
        self._check(model)
        with self._writing:
            self._save(model)
        return model.digest

    def replace(self, model: Model) -> None:
        """Store a version durably, replacing any file of this name."""
        self._check(model)
        with self._writing:
            files.make_folder(self.folder)
            self._write(model)

    def load(self, version: int) -> Model:
        """Return a version exactly as it was saved."""
        path = self._path(version)
        contents = read_tensors(path, numbers=self._shape.numbers, types=["F32"], fix=_RESTORE)
        self._check_origin(path, contents, purpose=_MODEL, fix=_RESTORE)
        identity, checked = self._checked.get(path, (None, b""))
        known = checked if contents.identity is not None and contents.identity == identity else None
        try:
            model = Model(task_id=self._task_id, version=version, **contents.tensors, checked=known)
            self._check(model)
        except (TypeError, WeightsError) as error:  # TypeError if there are tensors other than `rows` and `dense`
            raise DamagedFileError(f"{path} is not a model of this task; {_RESTORE}") from error
        self._check_sum(path, contents, model.digest, version, _RESTORE)
        if contents.identity is not None:
            self._checked[path] = contents.identity, model.digest
        return model

    def versions(self) -> list[int]:
        """Return the stored versions, oldest first."""
        return [version for version in self._numbers(_NAME) if self._path(version).is_file()]

    def prune(self, *, keep: int = VERSIONS, protect: Collection[int] = (), free: int | None = None) -> list[int]:
        """Remove versions that are no longer kept, with their states; return them.

        `choose_kept` selects the ones to keep. They may take half of the space, as much as is free besides them.
        """
        with self._writing:
            versions = self.versions()
            sizes = {version: self._size(version) for version in versions}
            room = None if free is None else (free + sum(sizes.values())) // 2
            kept = choose_kept(versions, keep=keep, protect=protect, size=sizes.__getitem__, room=room)
            old = [version for version in versions if version not in kept]
            for version in {*old, *self._states()} - kept:
                self._state_path(version).unlink(missing_ok=True)
            for version in old:
                self._path(version).unlink(missing_ok=True)
                self._checked.pop(self._path(version), None)
        return old

    def forget_tasks(self, task_ids: Collection[bytes]) -> None:
        """Remove the folders of tasks that do not run."""
        for task_id in task_ids:
            shutil.rmtree(self.folder.parent / task_id.hex(), ignore_errors=True)

    def save_state(self, state: OptimiserState) -> None:
        """Store the optimiser's state at a version, replacing those of later versions; save that model first."""
        if state.task_id != self._task_id:
            raise ForeignFileError("this optimiser state belongs to another task; each task has its own optimiser")
        metadata = self._metadata(_STATE, state.version, state.digest)
        with self._writing:
            if state.version not in self.versions():
                raise ModelConflictError("save the model of a step before the optimiser state that produced it")
            path = self._state_path(state.version)
            facts = metadata | {"kind": state.kind, "steps": str(state.steps)}
            write_tensors(path, state.tensors, facts, mode=files.PRIVATE)
            self._forget_states_after(state.version)

    def save_step(self, step: ModelStep) -> Model:
        """Store a version and the optimiser's state after it, block by block; the version first."""
        if step.task_id != self._task_id:
            raise ForeignFileError("this step is of another task; each task has its own model")
        model, state = self._path(step.version), self._state_path(step.version)
        with self._writing:
            files.make_folder(self.folder)
            files.remove_unfinished(self.folder)
            try:
                with ExitStack() as stack:  # the file that was opened last gets its name first
                    outer = stack.enter_context(whole_file(state, mode=files.PRIVATE)) if step.kind else None
                    inner = stack.enter_context(whole_file(model, mode=files.PRIVATE))
                    digest = write_step(outer, inner, step, self._shape, self._metadata)
                    if step.digest not in (None, digest):
                        raise WeightsError("the model does not match the announced digest")
                    if model.exists() and self.load(step.version).digest != digest:
                        raise ModelConflictError(_CONFLICT.format(model))
            except OSError as error:
                raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error
            self._forget_states_after(step.version)
            return self._checked_model(step.version, digest)

    def _checked_model(self, version: int, digest: bytes) -> Model:
        """Return a version that has just been written."""
        path = self._path(version)
        contents = read_tensors(path, numbers=self._shape.numbers, types=["F32"], fix=_RESTORE)
        if contents.identity is not None:
            self._checked[path] = contents.identity, digest
        return Model(task_id=self._task_id, version=version, **contents.tensors, checked=digest)

    def _forget_states_after(self, version: int) -> None:
        for later in (one for one in self._states() if one > version):
            self._state_path(later).unlink(missing_ok=True)

    def load_state(self, version: int | None = None) -> OptimiserState | None:
        """Return the optimiser's state at a version, or the latest one; None if there is none."""
        states = self._states()
        if not states or version not in (None, *states):
            return None
        path = self._state_path(states[-1] if version is None else version)
        numbers = _STATE_TENSORS * self._shape.numbers
        contents = read_tensors(path, numbers=numbers, types=["F32"], fix=_RESTORE_STATE)
        self._check_origin(path, contents, purpose=_STATE, fix=_RESTORE_STATE)
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
            raise DamagedFileError(f"{path} is not an optimiser state; {_RESTORE_STATE}") from error
        self._check_sum(path, contents, digest, state.version, _RESTORE_STATE)
        return state

    def _path(self, version: int) -> Path:
        return self.folder / version_name(version)

    def _state_path(self, version: int) -> Path:
        return self.folder / state_name(version)

    def _states(self) -> list[int]:
        return self._numbers(_STATE_NAME)

    def _numbers(self, name: re.Pattern[str]) -> list[int]:
        """Return the versions found in file names, sorted."""
        names = self.folder.glob("v*.safetensors")
        return sorted({int(match[1]) for one in names if (match := name.fullmatch(one.name))})

    def _size(self, version: int) -> int:
        paths = self._path(version), self._state_path(version)
        return sum(path.stat().st_size for path in paths if path.exists())

    def _save(self, model: Model) -> None:
        files.make_folder(self.folder)
        files.remove_unfinished(self.folder)
        path = self._path(model.version)
        if not path.exists():
            self._write(model)
        elif self.load(model.version).digest != model.digest:
            raise ModelConflictError(_CONFLICT.format(path))

    def _write(self, model: Model) -> None:
        arrays = {"rows": model.rows, "dense": model.dense}
        facts = self._metadata(_MODEL, model.version, model.digest)
        write_tensors(self._path(model.version), arrays, facts, mode=files.PRIVATE)

    def _metadata(self, purpose: str, version: int, digest: bytes) -> dict[str, str]:
        return origin(purpose, self._task_id, version, digest)

    def _check(self, model: Model) -> None:
        if model.task_id != self._task_id:
            raise WeightsError("this model belongs to another task; each task has its own store")
        check_shape(model, self._shape)

    def _check_origin(self, path: Path, contents: Contents, *, purpose: str, fix: str) -> None:
        metadata = contents.metadata
        if metadata.get("format") != purpose or metadata.get("task") != self._task_id.hex():
            raise ForeignFileError(f"{path} was made for another task or purpose; {fix}")

    @staticmethod
    def _check_sum(path: Path, contents: Contents, digest: bytes, version: int, fix: str) -> None:
        if contents.metadata.get("version") != str(version):
            raise ForeignFileError(f"{path} contains a different version than its name says; {fix}")
        if contents.metadata.get("digest") != digest.hex():
            raise DamagedFileError(f"{path} has been altered since it was written; {fix}")
