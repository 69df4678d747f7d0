"""The item table as devices copy it, to rank without asking anybody. All numbers are little-endian.

A full copy is one encoded row an item, in the order of the items, and nothing else:

    float32    width · 4    the row's numbers, bit for bit
    int8       4            scale, a float32: the largest absolute number of the row divided by 127
               width        steps, signed bytes: each number divided by the scale, rounded to the nearest, ties to even

Number = scale · steps. A scale that would be smaller than the smallest normal float32 is zero, and so are its steps;
none is larger than 0x1.0204060000000p+121, so that 127 times it is still a float32.
Two servers that hold the same table make the same bytes: every operation is one that IEEE 754 rounds exactly.

A delta leads from the copy of one version to that of another of the same format:

    4                  count, u32
    count · 4          numbers of the rows that differ, u32, ascending
    count · row        these rows as the newer copy has them
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import EncodingError, LengthError

Rows = npt.NDArray[np.float32]  # (n, width)
Encoded = npt.NDArray[np.uint8]  # (n, bytes of a row)
Numbers = npt.NDArray[np.int64]

COUNT_BYTES = NUMBER_BYTES = SCALE_BYTES = 4
_STEPS = np.float32(127)
_SMALLEST = np.finfo(np.float32).tiny
_LARGEST = np.nextafter(np.finfo(np.float32).max / _STEPS, np.float32(0))  # 127 times this is still a float32


class TableFormat(StrEnum):
    """How the numbers of a copy are written."""

    FLOAT32 = "float32"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyShape:
    """The exact sizes of copies of one table in one format."""

    format: TableFormat
    items: int
    width: int

    @property
    def row_bytes(self) -> int:
        """Return the length of one encoded row."""
        return 4 * self.width if self.format is TableFormat.FLOAT32 else SCALE_BYTES + self.width

    @property
    def copy_bytes(self) -> int:
        """Return the length of a full copy."""
        return self.items * self.row_bytes

    @property
    def longest_delta(self) -> int:
        """Return the length of a delta in which every row differs."""
        return COUNT_BYTES + self.items * (NUMBER_BYTES + self.row_bytes)

    def encode(self, rows: Rows) -> Encoded:
        """Return rows as a copy holds them, shape (n, bytes of a row)."""
        if self.format is TableFormat.FLOAT32:
            return np.ascontiguousarray(rows, dtype="<f4").view(np.uint8)
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
        scales = np.ascontiguousarray(encoded[:, :SCALE_BYTES]).view("<f4")
        return encoded[:, SCALE_BYTES:].view(np.int8).astype(np.float32) * scales.astype(np.float32, copy=False)

    def read_delta(self, data: Encoded) -> tuple[Numbers, Encoded]:
        """Return the numbers of the rows that a delta replaces and the encoded rows; refuse what is no delta."""
        if data.size < COUNT_BYTES:
            raise LengthError("a delta begins with the number of its rows")
        count = int(data[:COUNT_BYTES].view("<u4")[0])
        cut = COUNT_BYTES + count * NUMBER_BYTES
        if data.size != cut + count * self.row_bytes:
            raise LengthError("a delta is exactly as long as the number of its rows says")
        numbers = data[COUNT_BYTES:cut].view("<u4").astype(np.int64)
        if count and (int(numbers[-1]) >= self.items or (np.diff(numbers) <= 0).any()):
            raise EncodingError("the row numbers of a delta ascend and lie within the catalogue")
        return numbers, data[cut:].reshape(count, self.row_bytes)


def delta_head(numbers: Numbers) -> bytes:
    """Return the beginning of a delta: how many rows it replaces, and which."""
    return len(numbers).to_bytes(COUNT_BYTES, "little") + numbers.astype("<u4").tobytes()
