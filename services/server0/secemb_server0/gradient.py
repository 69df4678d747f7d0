"""A round's plaintext sum and the mean gradient in it, read in blocks of rows: neither has to fit in memory."""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from secemb_party.errors import GradientError
from secemb_party.evaluation import share_bytes
from secemb_party.storage import Blob
from secemb_shared.dpf import RingArray
from secemb_shared.errors import LengthError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.ring import Ring
from secemb_shared.secure_sum import SUM_RING

Doubles = npt.NDArray[np.float64]


class Table(Protocol):
    """Rows of numbers, which may be computed when they are read; an array is one too."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return (rows, width)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the numbers."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Return some consecutive rows."""


class Sum(Protocol):
    """The plaintext sum of a round."""

    @property
    def rows(self) -> Table:
        """Return the sums by row: (items, width)."""

    @property
    def dense(self) -> RingArray:
        """Return the sums of the dense part."""

    @property
    def sums(self) -> RingArray:
        """Return the sums of a survey or an evaluation."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AddedShares:
    """The plaintext sum of two stored shares; rows are read and added when they are needed."""

    rows: Table
    dense: RingArray
    sums: RingArray

    @classmethod
    def of(cls, spec: RoundSpec, own: Blob, other: Blob) -> Self:
        """Return the sum of two shares of this round; any other length is refused."""
        size, task, trains = share_bytes(spec), spec.task, spec.kind == TRAIN
        if any(one.size != size for one in (own, other)):
            raise LengthError(f"a share of this round must be exactly {size} bytes")
        items, dense, ring = task.items if trains else 0, task.dense_size if trains else 0, task.ring
        start = items * task.row_width * ring.element_bytes
        return cls(
            _AddedRows(own, other, (items, task.row_width), ring),
            _add(own, other, start, dense, ring),
            _add(own, other, start + dense * ring.element_bytes, spec.sum_size, SUM_RING),
        )


class _AddedRows:
    """The rows of two shares, added when they are read."""

    def __init__(self, own: Blob, other: Blob, shape: tuple[int, ...], ring: Ring) -> None:
        self._own, self._other, self._ring = own, other, ring
        self.shape, self.dtype = shape, ring.dtype

    def __getitem__(self, rows: slice, /) -> RingArray:
        count, width = self.shape
        first, last, _ = rows.indices(count)
        start = first * width * self._ring.element_bytes
        return _add(self._own, self._other, start, max(0, last - first) * width, self._ring).reshape(-1, width)


def _add(own: Blob, other: Blob, start: int, count: int, ring: Ring) -> RingArray:
    first, second = (ring.unpack(one.read(start, count * ring.element_bytes)) for one in (own, other))
    added: RingArray = first + second
    return added


class Means:
    """The means of sums in a ring, decoded when they are read."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, ring: Ring, sums: Table, sessions: int) -> None:
        self._ring, self._sums, self._sessions = ring, sums, sessions
        self.shape = sums.shape

    def __getitem__(self, rows: slice, /) -> Doubles:
        means = self._ring.decode(self._sums[rows])
        means /= self._sessions
        return means


@dataclass(frozen=True, kw_only=True, slots=True, repr=False, eq=False)
class Gradient:
    """The mean of the updates of a round's sessions."""

    rows: Table  # (items, width), float64
    dense: Doubles  # (dense size,)

    @classmethod
    def mean(cls, ring: Ring, *, rows: Table, dense: RingArray, sessions: int) -> Self:
        """Return the mean for sums in the ring."""
        if sessions < 1:
            raise GradientError("a mean requires at least one session")
        return cls(rows=Means(ring, rows, sessions), dense=Means(ring, dense, sessions)[:])
