"""The best private part for the rows that a device has just read, where the score is linear in it: ridge regression."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.models.interface import Floats

Doubles = npt.NDArray[np.float64]

CAUTION = 0.5  # standard errors
_TINY = 1e-9
_UNTHREADED = 1 << 18  # multiplications of a product that BLAS computes in the calling thread


@dataclass(frozen=True)
class Penalties:
    """What keeps vectors and biases small. Found on MovieLens-100K and -1M and on samples of them (docs/quality.md)."""

    rating: float = 0.05  # once for each rating, on the vectors of the person and the item
    person: float = 3.0  # once, on the person's vector
    bias: float = 3.5  # once, on the person's bias

    def diagonal(self, ratings: int, vectors: npt.NDArray[np.bool_]) -> Floats:
        """Return the penalty of each number of a private part; `vectors` tells those of vectors from biases."""
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
    """Return the ridge regression with as much of the person's vector as it is worth; `vectors` says what that is.

    What the vector is worth shows where each rating is predicted from the others: the share of its prediction that
    leaves the least squares, less `caution` standard errors. Where items share no taste, vectors would learn noise.
    Here they then get nothing to learn from, and the biases remain.
    """
    biases, left = _leave_one_out(inputs[:, ~vectors], targets, diagonal[~vectors])
    whole, still_left = _leave_one_out(inputs, targets, diagonal)
    said = left - still_left  # by the vector, about a rating that it does not know
    gains = left * said
    worth = gains.sum() - caution * np.sqrt((gains * gains).sum())
    share = np.clip(worth / max(np.dot(said, said), _TINY), 0.0, 1.0)
    found: Floats = (share * whole).astype(np.float32)
    found[~vectors] += (1 - share) * biases
    return found


def _leave_one_out(inputs: Floats, targets: Floats, diagonal: Floats) -> tuple[Doubles, Doubles]:
    """Return the best x, and for each target what is left of it if x is fitted to the others, in closed form."""
    wide = inputs.astype(np.float64)
    inverse = np.linalg.inv(_normal(wide, diagonal)).astype(np.float64)
    found: Doubles = inverse @ (wide.T @ targets)
    leverages = np.concatenate([np.einsum("ij,ij->i", block @ inverse, block) for block in _blocks(wide)])
    left: Doubles = (targets - wide @ found) / np.maximum(1 - leverages, _TINY)
    return found, left


def _normal(wide: Doubles, diagonal: Floats) -> Doubles:
    normal = _gram(wide)
    normal.flat[:: len(normal) + 1] += np.maximum(diagonal, 1e-6)  # on the diagonal: never singular
    return normal


def _gram(inputs: Doubles) -> Doubles:
    """Return inputs.T · inputs."""
    width = inputs.shape[1]
    return sum((block.T @ block for block in _blocks(inputs)), start=np.zeros((width, width)))


def _blocks(inputs: Doubles) -> Iterator[Doubles]:
    """Yield some rows after the other: for a long product BLAS would wake threads, at ten times the cost."""
    count, width = inputs.shape
    rows = max(1, _UNTHREADED // max(1, width * width))
    return (inputs[first : first + rows] for first in range(0, max(1, count), rows))
