"""A version of the model on its way from server 0 to server 1: the rows that have changed, or all numbers.

The changes are encoded as the delta of a float32 copy, with the whole dense part after it (docs/reference/protocol.md).
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secemb_party.errors import WeightsError
from secemb_party.storage.blob import Blob, FileBlob
from secemb_party.storage.mapped_arrays import release
from secemb_party.storage.model import Floats, Model, ModelStep, Shape, little_endian
from secemb_shared.messages.table import COUNT_BYTES, NUMBER_BYTES, Numbers, delta_head

_SPAN = 1 << 20  # numbers compared or copied together


@dataclass(frozen=True, slots=True, repr=False)
class Publication:
    """A version to publish, and the bytes from which the other server makes it."""

    model: Model
    changes: bool  # the bytes are the rows that differ from the version before
    body: Blob


class ModelNumbers:
    """The numbers of a model as bytes: rows, then the dense part."""

    def __init__(self, model: Model) -> None:
        self._parts = little_endian(model.rows), little_endian(model.dense)
        self.size = sum(part.nbytes for part in self._parts)

    def read(self, first: int, count: int) -> bytes:
        """Return bytes from any position."""
        rows, dense = self._parts
        start = max(0, first - rows.nbytes)
        found = bytes(rows[first : first + count]) + bytes(dense[start : max(0, first + count - rows.nbytes)])
        release(np.frombuffer(rows[first : first + count], dtype=np.uint8))
        return found


def publication(model: Model, before: Model | None, scratch: Path) -> Publication:
    """Return what to send to a server that has the version `before`: whatever is shorter."""
    numbers = ModelNumbers(model)
    if before is not None:
        found = [span.start + _differ(model.rows[span], before.rows[span]) for span in _spans(model)]
        changed: Numbers = np.concatenate(found)
        size = COUNT_BYTES + changed.size * (NUMBER_BYTES + 4 * model.shape.width) + 4 * model.shape.dense
        if size < numbers.size:
            return Publication(model, changes=True, body=_store(_encode(model, changed), scratch))
    return Publication(model, changes=False, body=numbers)


def patched(before: Model, version: int, digest: bytes, body: Blob) -> ModelStep:
    """Return the version that the changes in `body` make of the version before."""
    shape = before.shape
    count = int.from_bytes(body.read(0, COUNT_BYTES), "little")
    start = COUNT_BYTES + NUMBER_BYTES * count
    if body.size != start + 4 * (count * shape.width + shape.dense):
        raise WeightsError("the length of a model's changes must match their number")
    numbers: Numbers = np.frombuffer(body.read(COUNT_BYTES, NUMBER_BYTES * count), dtype="<u4").astype(np.int64)
    if count and (int(numbers[-1]) >= shape.items or (np.diff(numbers) <= 0).any()):
        raise WeightsError("the numbers of changed rows must be in ascending order and within the catalogue")

    def blocks() -> Iterator[dict[str, Floats]]:
        for span in _spans(before):
            rows = before.rows[span].copy()
            release(before.rows[span])
            first, last = np.searchsorted(numbers, (span.start, span.start + len(rows)))
            row = 4 * shape.width
            new = np.frombuffer(body.read(start + int(first) * row, int(last - first) * row), dtype="<f4")
            rows[numbers[first:last] - span.start] = new.reshape(-1, shape.width)
            yield {"rows": rows}
        dense = body.read(start + 4 * count * shape.width, 4 * shape.dense)
        yield {"dense": np.frombuffer(dense, dtype="<f4").astype(np.float32)}

    return ModelStep(task_id=before.task_id, version=version, blocks=blocks(), digest=digest)


def mapped(task_id: bytes, version: int, shape: Shape, path: Path) -> Model:
    """Return the version whose numbers are in a file; they are not read into memory."""
    if path.stat().st_size != 4 * shape.numbers:
        raise WeightsError(f"a model of this task must be exactly {4 * shape.numbers} bytes")
    numbers = np.memmap(path, dtype="<f4", mode="r").astype(np.float32, copy=False)
    cut = shape.items * shape.width
    rows, dense = np.asarray(numbers[:cut]).reshape(shape.items, shape.width), np.asarray(numbers[cut:])
    return Model(task_id=task_id, version=version, rows=rows, dense=dense)


def _spans(model: Model) -> Iterator[slice]:
    step = max(1, _SPAN // model.shape.width)
    return (slice(first, first + step) for first in range(0, model.shape.items, step))


def _differ(new: Floats, old: Floats) -> Numbers:
    """Return which rows differ, by their bits: two zeros may have different signs."""
    differ: Numbers = np.flatnonzero((new.view(np.uint32) != old.view(np.uint32)).any(axis=1))
    release(new)
    release(old)
    return differ


def _encode(model: Model, changed: Numbers) -> Iterator[bytes | memoryview]:
    yield delta_head(changed)
    step = max(1, _SPAN // model.shape.width)
    for first in range(0, changed.size, step):
        yield little_endian(model.rows[changed[first : first + step]])
    yield little_endian(model.dense)


def _store(parts: Iterator[bytes | memoryview], scratch: Path) -> FileBlob:
    """Write parts to a new file without a name, and return it."""
    with tempfile.TemporaryFile(dir=scratch) as file:
        for part in parts:
            file.write(part)
        file.flush()
        size = file.tell()
        descriptor = os.dup(file.fileno())
    return FileBlob(descriptor, size=size)
