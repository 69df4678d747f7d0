"""The guard before an optimiser: it limits a row's mean gradient to a multiple of the row's usual length.

A single round with far too long gradients would move a row for many rounds and, with Adam, keep it from moving for
thousands. For row r with the mean gradient g:

    n  = the length of g
    s  = the running scale of the row; zero before its first gradient
    t  = the median of all scales above zero; before the first step, of all lengths above zero
    n' = min(n, k · max(s, t)), with the task's multiple k
    g is shortened to the length n'; then, where n > 0, s ← n' if s is zero, else √(β · s² + (1 − β) · n'²)

The dense part is treated as the only row of a separate table. docs/reference/protocol.md has the same definition.
"""

import math
from collections.abc import Mapping

import numpy as np

from secemb_party.errors import OptimiserError, StateError
from secemb_party.storage import Floats
from secemb_server0.gradient import Doubles, Table

BETA = 0.99
LARGEST_MULTIPLE = 1e6
_BLOCK = 1 << 14  # numbers processed together, which stay in cache
_SPAN = 1 << 20  # numbers read together


class Guard:
    """The running scales of a model's rows and of its dense part."""

    def __init__(self, multiple: float) -> None:
        if not 1 <= multiple <= LARGEST_MULTIPLE:
            raise OptimiserError("the guard multiple must be a number from 1 to 1,000,000, or 0 for no guard")
        self._multiple = multiple
        self._scales: dict[str, Floats] = {}
        self.limited: dict[str, int] = {}  # rows that the last step has shortened, by part

    def factors(self, part: str, lengths: Doubles) -> Floats | None:
        """Return the factor for the gradient of each row, or None if all are one, and update the scales."""
        scales = self._scales.get(part, np.zeros(lengths.size, dtype=np.float32)).astype(np.float64)
        known = scales[scales > 0] if (scales > 0).any() else lengths[lengths > 0]
        usual = float(np.median(known)) if known.size else 0.0
        shortened = np.minimum(lengths, self._multiple * np.maximum(scales, usual))
        blended = np.where(scales > 0, np.sqrt(BETA * scales**2 + (1 - BETA) * shortened**2), shortened)
        self._scales[part] = np.where(lengths > 0, blended, scales).astype(np.float32)
        self.limited[part] = int(np.count_nonzero(shortened < lengths))
        if not self.limited[part]:
            return None
        factors = np.ones(lengths.size, dtype=np.float64)
        return np.divide(shortened, lengths, out=factors, where=shortened < lengths).astype(np.float32)

    def check(self, rows: int, dense: int) -> None:
        """Refuse scales of a different model."""
        if self._scales and {name: one.size for name, one in self._scales.items()} != _sizes(rows, dense):
            raise StateError("the restored state is for a model with a different shape")

    def tensors(self) -> Mapping[str, Floats]:
        """Return the state by name."""
        return {f"{part}_scale": values for part, values in self._scales.items()}

    def take(self, tensors: dict[str, Floats]) -> None:
        """Restore the guard from a state, or refuse it."""
        found = {name.removesuffix("_scale"): tensors.pop(name) for name in list(tensors) if name.endswith("_scale")}
        if "rows" not in found or any(one.dtype != np.float32 or one.ndim != 1 for one in found.values()):
            raise StateError("the state does not have the scales of the guard")
        if not all((np.isfinite(one) & (one >= 0)).all() for one in found.values()):
            raise StateError("the scales in a state must be finite and non-negative")
        self._scales = found


def row_lengths(slope: Table) -> Doubles:
    """Return the Euclidean length of each row.

    Squares are added in pairs from both ends inwards, each sum rounded according to IEEE 754, so the result is the same
    on every machine.
    """
    count, width = slope.shape
    lengths, step, span = np.empty(count, dtype=np.float64), max(1, _BLOCK // width), max(1, _SPAN // width)
    scratch = np.empty((min(step, count), width), dtype=np.float64)
    for start in range(0, count, span):
        rows = slope[start : start + span]
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            squares = np.multiply(some, some, out=scratch[: len(some)])
            np.sqrt(_fold(squares), out=lengths[start + first : start + first + len(some)])
    return lengths


def whole_length(slope: Doubles) -> Doubles:
    """Return the length of a vector of any size, as an array of one element; empty for an empty vector."""
    if not slope.size:
        return np.empty(0, dtype=np.float64)
    blocks = (slope[first : first + _BLOCK] for first in range(0, slope.size, _BLOCK))
    total = sum(float(_fold((block * block)[np.newaxis])[0]) for block in blocks)
    return np.array([math.sqrt(total)])


def _fold(squares: Doubles) -> Doubles:
    """Return the sum of each row; the numbers are overwritten."""
    width = squares.shape[1]
    while width > 1:
        half = width // 2
        np.add(squares[:, :half], squares[:, width - half : width], out=squares[:, :half])
        width -= half
    return squares[:, 0]


def _sizes(rows: int, dense: int) -> dict[str, int]:
    return {"rows": rows, **({"dense": 1} if dense else {})}
