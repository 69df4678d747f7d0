"""The item table as devices copy it, and the digest that identifies a model version. Numbers are little-endian."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import EncodingError, LengthError
from secemb_shared.row_words import HALF, Rows, to_half

_DOMAIN = b"secemb/1 model"


def model_digest(
    task_id: bytes,
    *,
    version: int,
    items: int,
    width: int,
    dense: int,
    parts: Iterable[bytes | memoryview],
) -> bytes:
    """Return the digest of a version from its bytes, the rows and then the dense part, in parts of any size."""
    hashed = hash_model(task_id, version=version, items=items, width=width, dense=dense)
    for part in parts:
        hashed.update(part)
    return hashed.digest()


def hash_model(task_id: bytes, *, version: int, items: int, width: int, dense: int) -> "hashlib._Hash":
    """Return the beginning of a version's digest; the rows and then the dense part are still to be added."""
    hashed = hashlib.sha256(_DOMAIN + task_id)
    for number in (version, items, width, dense):
        hashed.update(number.to_bytes(8, "little"))
    return hashed


Encoded = npt.NDArray[np.uint8]  # (n, bytes of a row)
Numbers = npt.NDArray[np.int64]

COUNT_BYTES = NUMBER_BYTES = SCALE_BYTES = 4
_STEPS = np.float32(127)
_SMALLEST = np.finfo(np.float32).tiny
_LARGEST = np.nextafter(np.finfo(np.float32).max / _STEPS, np.float32(0))  # 127 times this is still a finite float32


class TableFormat(StrEnum):
    """The encoding of the numbers in a copy."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"

    @classmethod
    def exact(cls, row_bits: int) -> "TableFormat":
        """Return the format in which rows of this many bits a number lose nothing and take the fewest bytes."""
        return cls.FLOAT16 if row_bits == HALF else cls.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyShape:
    """The exact sizes of copies of one table in one format."""

    format: TableFormat
    items: int
    width: int

    @property
    def row_bytes(self) -> int:
        """Return the length of one encoded row."""
        sizes = {TableFormat.FLOAT32: 4 * self.width, TableFormat.FLOAT16: 2 * self.width}
        return sizes.get(self.format, SCALE_BYTES + self.width)

    @property
    def copy_bytes(self) -> int:
        """Return the length of a full copy."""
        return self.items * self.row_bytes

    @property
    def longest_delta(self) -> int:
        """Return the length of a delta in which every row differs."""
        return COUNT_BYTES + self.items * (NUMBER_BYTES + self.row_bytes)

    def encode(self, rows: Rows) -> Encoded:
        """Return rows as encoded in a copy, shape (n, bytes of a row)."""
        if self.format is TableFormat.FLOAT32:
            return np.ascontiguousarray(rows, dtype="<f4").view(np.uint8)
        if self.format is TableFormat.FLOAT16:
            return np.ascontiguousarray(to_half(rows), dtype="<f2").view(np.uint8)
        scales = np.minimum(np.abs(rows).max(axis=1) / _STEPS, _LARGEST)
        scales[scales < _SMALLEST] = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(scales[:, None] > 0, np.rint(rows / scales[:, None]), 0)
        encoded = np.empty((len(rows), self.row_bytes), dtype=np.uint8)
        encoded[:, :SCALE_BYTES] = scales.astype("<f4").view(np.uint8).reshape(-1, SCALE_BYTES)
        encoded[:, SCALE_BYTES:] = np.clip(steps, -_STEPS, _STEPS).astype(np.int8).view(np.uint8)
        return encoded

    def decode(self, encoded: Encoded) -> Rows:
        """Return the numbers of encoded rows, shape (n, width)."""
        if self.format is TableFormat.FLOAT32:
            return np.ascontiguousarray(encoded).view("<f4").astype(np.float32, copy=False)
        if self.format is TableFormat.FLOAT16:
            return np.ascontiguousarray(encoded).view("<f2").astype(np.float32)
        scales = np.ascontiguousarray(encoded[:, :SCALE_BYTES]).view("<f4")
        return encoded[:, SCALE_BYTES:].view(np.int8).astype(np.float32) * scales.astype(np.float32, copy=False)

    def read_delta(self, data: Encoded) -> tuple[Numbers, Encoded]:
        """Return the numbers of the rows that a delta replaces, and the encoded rows; refuse an invalid delta."""
        if data.size < COUNT_BYTES:
            raise LengthError("a delta must start with its row count")
        count = int(data[:COUNT_BYTES].view("<u4")[0])
        cut = COUNT_BYTES + count * NUMBER_BYTES
        if data.size != cut + count * self.row_bytes:
            raise LengthError("the length of a delta must match its row count")
        numbers = data[COUNT_BYTES:cut].view("<u4").astype(np.int64)
        if count and (int(numbers[-1]) >= self.items or (np.diff(numbers) <= 0).any()):
            raise EncodingError("row numbers in a delta must be in ascending order and within the catalogue")
        return numbers, data[cut:].reshape(count, self.row_bytes)


def delta_head(numbers: Numbers) -> bytes:
    """Return the beginning of a delta: how many rows it replaces, and which."""
    return len(numbers).to_bytes(COUNT_BYTES, "little") + numbers.astype("<u4").tobytes()
