"""The best private part for the rows that a device has just read, where the score is linear in it: ridge regression."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.models.interface import Floats

Doubles = npt.NDArray[np.float64]

_UNTHREADED = 1 << 18  # multiplications of a product that BLAS computes in the calling thread


@dataclass(frozen=True)
class Penalties:
    """What keeps vectors and biases small. Found on MovieLens-100K and -1M and on samples of them (docs/quality.md)."""

    rating: float = 0.05  # once for each rating, on the vectors of the person and the item
    person: float = 3.0  # once, on the person's vector
    bias: float = 4.0  # once, on the person's bias

    def diagonal(self, ratings: int, vectors: npt.NDArray[np.bool_]) -> Floats:
        """Return the penalty of each number of a private part; `vectors` tells those of vectors from biases."""
        found: Floats = np.where(vectors, self.rating * ratings + self.person, self.bias).astype(np.float32)
        return found


def solve_ridge(inputs: Floats, targets: Floats, diagonal: Floats) -> Floats:
    """Return the x that minimises |inputs · x − targets|² + Σ diagonal · x²."""
    wide = inputs.astype(np.float64)
    normal = _gram(wide)
    normal.flat[:: len(normal) + 1] += np.maximum(diagonal, 1e-6)  # on the diagonal: never singular
    found: Floats = np.linalg.solve(normal, wide.T @ targets).astype(np.float32)
    return found


def _gram(inputs: Doubles) -> Doubles:
    """Return inputs.T · inputs, in blocks: for a long product BLAS would wake threads, at ten times the cost."""
    count, width = inputs.shape
    rows = max(1, _UNTHREADED // max(1, width * width))
    blocks = (inputs[first : first + rows] for first in range(0, count, rows))
    return sum((block.T @ block for block in blocks), start=np.zeros((width, width)))
