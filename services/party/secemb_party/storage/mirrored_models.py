"""Versions of a model in an object store, with the files of a local folder as its cache.

An object has the name and the bytes of its file: `models/<task>/v000007.safetensors`. A version or state that another
process has stored is downloaded when it is first needed; the listing only helps to choose what to delete.
"""

import re
from collections.abc import Collection
from pathlib import Path

from secemb_party.errors import ModelConflictError, ModelError, ModelMissingError, StorageUnavailableError
from secemb_party.room import VERSIONS
from secemb_party.storage import files
from secemb_party.storage.blob import pieces
from secemb_party.storage.model import Model, ModelStep, OptimiserState
from secemb_party.storage.model_files import ModelFiles, state_name, version_name
from secemb_party.storage.objects import ObjectBlob, Objects
from secemb_party.storage.retention import choose_kept

_FOLDER = "models"
_NUMBER = re.compile(r"v(\d{6,})\.(optimiser\.)?safetensors")
_AROUND = (1, 0, -1)  # a state is of the model in use, of the next one, or of the one before


class MirroredModels:
    """The versions of one task's model in an object store."""

    def __init__(self, cache: ModelFiles, objects: Objects) -> None:
        self._cache, self._objects = cache, objects
        self._folder = f"{_FOLDER}/{cache.folder.name}"
        self._cached: dict[str, str | None] = {}  # the stamp of a state's object when its file was written

    def save(self, model: Model) -> bytes:
        """Store a version and return its digest; raise if the version exists with other numbers."""
        digest = self._cache.save(model)
        self._upload(model.version, digest)
        return digest

    def save_step(self, step: ModelStep) -> Model:
        """Store the version that a step produces and then the optimiser's state, if it has one; return the version."""
        model = self._cache.save_step(step)
        self._upload(model.version, model.digest)
        if step.kind:  # only server 0 has an optimiser
            self._upload_state(step.version)
        return model

    def replace(self, model: Model) -> None:
        """Store a version in place of an object that is not what the ledger names."""
        self._cache.replace(model)
        name = version_name(model.version)
        self._objects.replace(self._object(name), self._path(name))

    def load(self, version: int) -> Model:
        """Return a version exactly as it was saved."""
        name = version_name(version)
        if self._path(name).exists():
            try:
                return self._cache.load(version)
            except ModelError:
                pass  # the cache is corrupted, the object need not be
        self._fetch(name)
        return self._cache.load(version)

    def versions(self) -> list[int]:
        """Return the stored versions, oldest first; those of other processes as far as the listing shows them."""
        return sorted({*self._cache.versions(), *self._listed(states=False)})

    def prune(self, *, keep: int = VERSIONS, protect: Collection[int] = (), free: int | None = None) -> list[int]:
        """Remove versions that are no longer kept, with their states, from the object store and from the cache.

        `free` limits the cache only: a bucket has no limit.
        """
        self._cache.prune(keep=keep, protect=protect, free=free)
        versions = self._listed(states=False)
        kept = choose_kept(versions, keep=keep, protect=protect)
        old = [one for one in versions if one not in kept]
        states = [one for one in self._listed(states=True) if one < max(versions, default=0) and one not in kept]
        self._objects.remove([self._object(state_name(one)) for one in states])
        self._objects.remove([self._object(version_name(one)) for one in old])
        return old

    def forget_tasks(self, task_ids: Collection[bytes]) -> None:
        """Remove all data of tasks that do not run."""
        self._cache.forget_tasks(task_ids)
        for task_id in task_ids:
            self._objects.remove(self._objects.names(f"{_FOLDER}/{task_id.hex()}"))

    def save_state(self, state: OptimiserState) -> None:
        """Store the optimiser's state at a version.

        States of later versions stay: a process that wakes up after another has taken over must not remove the state
        that the other continues from.
        """
        model = version_name(state.version)
        if not self._path(model).exists():
            self._fetch(model)
        self._cache.save_state(state)
        self._upload_state(state.version)

    def load_state(self, version: int | None = None) -> OptimiserState | None:
        """Return the optimiser's state at a version, or the latest one; None if there is none."""
        wanted = self._latest_state() if version is None else version
        if wanted is None:
            return None
        name = state_name(wanted)
        stamp = self._objects.stamp(self._object(name))
        if stamp is None:
            return None
        if self._cached.get(name) != stamp or not self._path(name).exists():
            self._fetch(name)
            self._cached = {name: stamp}
        return self._cache.load_state(wanted)

    def _latest_state(self) -> int | None:
        """Return the version of the latest state. It is near the newest version, so no listing is needed to find it."""
        newest = max(self.versions(), default=0)
        near = (newest + step for step in _AROUND if newest + step >= 0)
        for one in near:
            if self._objects.stamp(self._object(state_name(one))) is not None:
                return one
        return max(self._listed(states=True), default=None)

    def _listed(self, *, states: bool) -> list[int]:
        matches = (_NUMBER.fullmatch(name.rpartition("/")[2]) for name in self._objects.names(self._folder))
        return sorted(int(one[1]) for one in matches if one is not None and bool(one[2]) == states)

    def _upload(self, version: int, digest: bytes) -> None:
        """Store a version that is in the cache, unless it is stored; refuse another model in its place."""
        name = version_name(version)
        if not self._objects.create(self._object(name), self._path(name)):
            self._fetch(name)  # two files of one model need not have the same bytes
            if self._cache.load(version).digest != digest:
                raise ModelConflictError(
                    f"the object store has a different model for version {version}; versions are never reused"
                )

    def _upload_state(self, version: int) -> None:
        name = state_name(version)
        self._objects.replace(self._object(name), self._path(name))
        self._cached = {name: self._objects.stamp(self._object(name))}

    def _fetch(self, name: str) -> None:
        """Download a file into the cache."""
        size = self._objects.size(self._object(name))
        if size is None:
            raise ModelMissingError(f"{name} is not in the object store; restore it from a backup")
        files.make_folder(self._cache.folder)
        files.remove_unfinished(self._cache.folder)
        try:
            with files.whole_file(self._path(name), mode=files.PRIVATE) as file:
                for piece in pieces(ObjectBlob(self._objects, self._object(name), size)):
                    file.write(piece)
        except StorageUnavailableError:
            raise
        except OSError as error:
            raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error

    def _path(self, name: str) -> Path:
        return self._cache.folder / name

    def _object(self, name: str) -> str:
        return f"{self._folder}/{name}"
