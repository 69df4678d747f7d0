"""Ridge regression: the best private part for the rows that a device has just read, if the score is linear in it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.models.interface import Floats

Doubles = npt.NDArray[np.float64]

CAUTION = 0.5  # standard errors
_TINY = 1e-9
_UNTHREADED = 1 << 18  # multiplications up to which BLAS computes a product in the calling thread


@dataclass(frozen=True)
class Penalties:
    """Penalties of vectors and biases. Tuned on MovieLens-100K and -1M and on samples of them (docs/quality.md)."""

    rating: float = 0.05  # once for each rating, on the vectors of the person and the item
    person: float = 3.0  # once, on the person's vector
    bias: float = 3.5  # once, on the person's bias

    def diagonal(self, ratings: int, vectors: npt.NDArray[np.bool_]) -> Floats:
        """Return the penalty of each element of a private part; `vectors` marks the elements of vectors."""
        found: Floats = np.where(vectors, self.rating * ratings + self.person, self.bias).astype(np.float32)
        return found


def solve_ridge(inputs: Floats, targets: Floats, diagonal: Floats) -> Floats:
    """Return the x that minimises |inputs · x − targets|² + Σ diagonal · x²."""
    wide = inputs.astype(np.float64)
    found: Floats = np.linalg.solve(_normal(wide, diagonal), wide.T @ targets).astype(np.float32)
    return found


def solve_cautiously(
    inputs: Floats, targets: Floats, diagonal: Floats, vectors: npt.NDArray[np.bool_], *, caution: float = CAUTION
) -> Floats:
    """Return the ridge regression with the person's vector shrunk by its predictive value; `vectors` marks the vector.

    The vector's value is measured by predicting each rating from the others: the share of its prediction that
    leaves the least squared error, less `caution` standard errors. If the items do not share tastes, vectors would
    learn noise; in that case only the biases remain.
    """
    wide, others = inputs.astype(np.float64), ~vectors
    biases, left = _leave_one_out(wide[:, others], targets, diagonal[others])
    whole, still_left = _leave_one_out(wide, targets, diagonal)
    said = left - still_left  # by the vector, for a rating that it was not fitted to
    gains = left * said
    worth = gains.sum() - caution * np.sqrt((gains * gains).sum())
    share = np.clip(worth / max(np.dot(said, said), _TINY), 0.0, 1.0)
    found: Floats = (share * whole).astype(np.float32)
    found[others] += (1 - share) * biases
    return found


def _leave_one_out(inputs: Doubles, targets: Floats, diagonal: Floats) -> tuple[Doubles, Doubles]:
    """Return the best x, and each target's residual when x is fitted to the others, in closed form."""
    inverse = np.linalg.inv(_normal(inputs, diagonal)).astype(np.float64, copy=False)
    found: Doubles = inverse @ (inputs.T @ targets)
    # Of 1 minus the leverages, in place: the arrays of one device are so small that each call counts.
    spare = np.empty(len(inputs))
    for some in _blocks(inputs):
        np.einsum("ij,ij->i", inputs[some] @ inverse, inputs[some], out=spare[some])
    np.subtract(1, spare, out=spare)
    left: Doubles = (targets - inputs @ found) / np.maximum(spare, _TINY, out=spare)
    return found, left


def _normal(wide: Doubles, diagonal: Floats) -> Doubles:
    first, *rest = _blocks(wide)
    normal: Doubles = wide[first].T @ wide[first]
    for some in rest:
        normal += wide[some].T @ wide[some]
    normal.flat[:: len(normal) + 1] += np.maximum(diagonal, 1e-6)  # on the diagonal, so that it is never singular
    return normal


def _blocks(inputs: Doubles) -> Iterator[slice]:
    """Yield the rows in blocks: for a long product BLAS would wake threads, at ten times the cost."""
    count, width = inputs.shape
    rows = max(1, _UNTHREADED // max(1, width * width))
    return (slice(first, first + rows) for first in range(0, max(1, count), rows))
