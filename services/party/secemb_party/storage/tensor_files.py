"""Named arrays in safetensors files, written in blocks and mapped, so that a file may be larger than memory.

The format is a header of JSON, which begins with its length as 8 bytes, and then the numbers. The library checks a file
before it is read; it would read and write only whole arrays in memory.
"""

import json
import mmap
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from secemb_party.errors import DamagedFileError, ModelFileError, ModelMissingError, StorageUnavailableError
from secemb_party.storage.files import whole_file

Shapes = Mapping[str, tuple[int, ...]]
Identity = tuple[int, int, int]  # of a file that has not been changed: inode, size, time of the last change

_TYPES: Mapping[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_LENGTH_BYTES = 8
_LARGEST_HEADER = 2**20
MAPPED = 1 << 26  # bytes: a larger file is mapped; a smaller one is read, so that it may be overwritten
_open: Callable[..., Any] = safe_open  # untyped in its stub


@dataclass(frozen=True, slots=True, repr=False)
class Contents:
    """The content of a safetensors file."""

    metadata: Mapping[str, str]
    tensors: dict[str, npt.NDArray[Any]]
    identity: Identity | None = None  # of a file that is mapped


class TensorWriter:
    """Writes a file of arrays whose shapes are known and whose numbers are not yet."""

    def __init__(self, file: BinaryIO, tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        self._file, self._tensors = file, tensors
        self._written = dict.fromkeys(tensors, 0)  # bytes
        self._header = 0  # bytes, once it is written

    def begin(self, metadata: Mapping[str, str]) -> None:
        """Write the header, which can be written again later with values of the same lengths."""
        described: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        first = 0
        for name, (kind, shape) in self._tensors.items():
            last = first + kind.itemsize * prod(shape)
            described[name] = {"dtype": _NAMES[kind.newbyteorder("<")], "shape": shape, "data_offsets": [first, last]}
            first = last
        text = json.dumps(described, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _LENGTH_BYTES)  # so that the numbers are aligned
        if self._header and len(text) != self._header - _LENGTH_BYTES:
            raise ValueError("the metadata must have the same length as before")
        self._header = _LENGTH_BYTES + len(text)
        self._file.seek(0)
        self._file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)

    def append(self, name: str, values: npt.NDArray[Any]) -> None:
        """Write the next numbers of an array."""
        data = np.ascontiguousarray(values, dtype=self._tensors[name][0].newbyteorder("<")).reshape(-1)
        self._file.seek(self._place(name) + self._written[name])
        self._file.write(data.view(np.uint8).data)
        self._written[name] += data.nbytes

    def check(self) -> None:
        """Raise unless every number has been written."""
        whole = {name: kind.itemsize * prod(shape) for name, (kind, shape) in self._tensors.items()}
        if self._written != whole:
            raise ValueError("some blocks of the arrays are missing")

    def _place(self, wanted: str) -> int:
        place = self._header
        for name, (kind, shape) in self._tensors.items():
            if name == wanted:
                break
            place += kind.itemsize * prod(shape)
        return place


def write_tensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str], *, mode: int | None = None
) -> None:
    """Write a file that exists completely or not at all."""
    try:
        with whole_file(path, mode=mode) as file:
            writer = TensorWriter(file, {name: (values.dtype, values.shape) for name, values in tensors.items()})
            writer.begin(metadata)
            for name, values in tensors.items():
                writer.append(name, values)
    except OSError as error:
        raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error


def read_tensors(path: Path, *, numbers: int, types: Collection[str], fix: str) -> Contents:
    """Return the content of a file, if it is at most `numbers` numbers of these safetensors types.

    The arrays of a large file are mapped and read-only; they remain valid when the file is removed or replaced.
    """
    try:
        if path.stat().st_size > 8 * numbers + _LARGEST_HEADER:
            raise DamagedFileError(f"{path} is too large for a model of this task; {fix}")
        with _open(path, framework="numpy") as file:
            names = list(file.keys())
            if any(file.get_slice(name).get_dtype() not in types for name in names):
                raise DamagedFileError(f"{path} contains tensors of types other than {' or '.join(types)}; {fix}")
            metadata = file.metadata() or {}
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            identity = status.st_ino, status.st_size, status.st_mtime_ns
            return Contents(metadata, map_tensors(opened), identity if status.st_size > MAPPED else None)
    except FileNotFoundError as error:
        raise ModelMissingError(f"{path} does not exist; check the name, or restore it from a backup") from error
    except OSError as error:
        raise ModelFileError(f"cannot read {path}; check that it is a file that this user can read") from error
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is truncated, altered or not a safetensors file; {fix}") from error


def data_start(path: Path) -> int:
    """Return where the numbers of a file begin."""
    with path.open("rb") as file:
        return _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little")


def map_tensors(file: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an open file."""
    file.seek(0)
    header = json.loads(file.read(int.from_bytes(file.read(_LENGTH_BYTES), "little")))
    header.pop("__metadata__", None)
    start, size = file.tell(), file.seek(0, os.SEEK_END)
    file.seek(0)
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size > MAPPED else file.read()
    found: dict[str, npt.NDArray[Any]] = {}
    for name, described in header.items():
        kind, (first, last) = _TYPES[described["dtype"]], described["data_offsets"]
        count = (last - first) // kind.itemsize  # an empty array has no place in the buffer
        flat = np.frombuffer(data, kind, count, start + first) if count else np.zeros(0, dtype=kind)
        found[name] = flat.reshape(described["shape"])
    return found
