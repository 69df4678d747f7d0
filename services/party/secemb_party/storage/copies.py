"""The data that devices copy: the catalogue, the table of a published model, its changes, and the dense part.

A part of a model is encoded once and then read from a file for any number of devices. The files have no names: the
system removes a file when no one uses it, even after a crash, and no file in the data directory can be mistaken for a
copy written by this process.
"""

import hashlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from secemb_party.async_cache import AsyncCache
from secemb_party.errors import SettingsError
from secemb_party.storage.blob import FileBlob
from secemb_party.storage.interfaces import ModelStore
from secemb_party.storage.mapped_arrays import release
from secemb_party.storage.model import Model, Shape, little_endian
from secemb_shared.catalogue import FILE, LARGEST
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import CopyShape, Encoded, Numbers, TableFormat, delta_head

Result = TypeVar("Result")
_KEPT = 12  # files: in two formats, a copy, the deltas to it and their base copies, and dense parts
_BLOCK_BYTES = 2**20


class Run(Protocol):
    """Runs long work in a thread."""

    def __call__(self, work: Callable[[], Result]) -> Awaitable[Result]:
        """Return the result of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCopy:
    """Something that can be copied: a table in a format, or its difference from `since`; or a dense part."""

    version: int
    format: TableFormat | None  # None is the dense part
    since: int | None = None


class Body(FileBlob):
    """Bytes in an open file, and the digests that go with them."""

    def __init__(
        self, descriptor: int, *, size: int, sha256: str, whole: str | None = None, model_digest: bytes = b""
    ) -> None:
        super().__init__(descriptor, size=size)
        self.sha256, self.model_digest = sha256, model_digest
        self.whole = whole or sha256  # SHA-256 of the full copy; differs from `sha256` for a delta


class TableCopies:
    """The copies of one task's model that devices request."""

    def __init__(self, models: ModelStore, shape: Shape, run: Run, scratch: Path) -> None:
        self._models, self._shape, self._run, self._scratch = models, shape, run, scratch
        self._bodies: AsyncCache[WantedCopy, Body] = AsyncCache(_KEPT)

    async def get(self, wanted: WantedCopy) -> Body:
        """Return the requested copy, encoded once however many callers request it at the same time."""
        return await self._bodies.get(wanted, lambda: self._make(wanted))

    def forget_all_but(self, versions: Collection[int]) -> None:
        """Drop the files of versions that are no longer kept."""
        self._bodies.drop(lambda wanted: wanted.version not in versions)

    async def _make(self, wanted: WantedCopy) -> Body:
        if wanted.since is None or wanted.format is None:
            return await self._run(lambda: self._encode(wanted))
        newer = await self.get(WantedCopy(version=wanted.version, format=wanted.format))
        older = await self.get(WantedCopy(version=wanted.since, format=wanted.format))
        shape = self._copy_shape(wanted.format)
        return await self._run(lambda: _store(self._scratch, _delta(shape, older, newer), newer))

    def _encode(self, wanted: WantedCopy) -> Body:
        model = self._models.load(wanted.version)
        if wanted.format is None:
            return _store(self._scratch, [little_endian(model.dense)], model)
        return _store(self._scratch, _blocks(self._copy_shape(wanted.format), model), model)

    def _copy_shape(self, format_: TableFormat) -> CopyShape:
        return CopyShape(format=format_, items=self._shape.items, width=self._shape.width)


def _blocks(shape: CopyShape, model: Model) -> Iterator[memoryview]:
    """Yield a full copy in batches of rows."""
    for first, last in _spans(shape):
        yield shape.encode(model.rows[first:last]).data
        release(model.rows[first:last])


def _delta(shape: CopyShape, older: Body, newer: Body) -> Iterator[bytes | memoryview]:
    """Yield the delta between two copies; neither has to fit in memory."""
    numbers: list[Numbers] = []
    for first, last in _spans(shape):
        differ = (_rows(shape, older, first, last) != _rows(shape, newer, first, last)).any(axis=1)
        numbers.append(first + np.flatnonzero(differ))
    yield delta_head(np.concatenate(numbers))
    for (first, last), changed in zip(_spans(shape), numbers, strict=True):
        yield np.ascontiguousarray(_rows(shape, newer, first, last)[changed - first]).data


def _rows(shape: CopyShape, body: Body, first: int, last: int) -> Encoded:
    data = body.read(first * shape.row_bytes, (last - first) * shape.row_bytes)
    return np.frombuffer(data, dtype=np.uint8).reshape(last - first, shape.row_bytes)


def _spans(shape: CopyShape) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_BYTES // shape.row_bytes)
    return ((first, min(first + step, shape.items)) for first in range(0, shape.items, step))


def _store(folder: Path, parts: Iterable[bytes | memoryview], origin: Model | Body) -> Body:
    """Write parts to a new unnamed file and return it."""
    hashed = hashlib.sha256()
    with tempfile.TemporaryFile(dir=folder) as file:
        for part in parts:
            file.write(part)
            hashed.update(part)
        file.flush()
        size, sha256 = file.tell(), hashed.hexdigest()
        whole, digest = (origin.sha256, origin.model_digest) if isinstance(origin, Body) else (sha256, origin.digest)
        return Body(os.dup(file.fileno()), size=size, sha256=sha256, whole=whole, model_digest=digest)


def catalogue_path(task_file: Path, given: Path | None) -> Path:
    """Return the path of a server's catalogue: next to the task, unless the settings name another path."""
    return given or task_file.with_name(FILE)


def open_catalogue(task: TaskSpec, path: Path) -> Body | None:
    """Return the catalogue file whose digest is in the task, or None if the task has no catalogue."""
    if not task.catalogue:
        return None
    fix = f"copy the {FILE} that `secemb task create` wrote to this path, or set task.catalogue_file"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise SettingsError(f"the task has a catalogue, but {path} cannot be read; {fix}") from None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST or hashlib.file_digest(file, "sha256").hexdigest() != task.catalogue:
            raise SettingsError(f"{path} is not the catalogue of this task; {fix}")
        return Body(os.dup(file.fileno()), size=size, sha256=task.catalogue)
