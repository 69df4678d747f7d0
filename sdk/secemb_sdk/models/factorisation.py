"""Biased matrix factorisation with gradients written by hand: what the base install trains.

    prediction   μ + b_u + b_i + ⟨p_u, q_i⟩
    loss         Σ over the device's ratings of e² + penalty · (|p_u|² + b_u² + |q_i|² + b_i²)

An item's row is its vector q_i and then its bias b_i. The private part is the person's vector p_u and then b_u.
"""

import numpy as np

from secemb_sdk.errors import PartError
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_shared.randomness import Indices

MIDDLE = 3.0  # of a scale from 1 to 5; unlike the mean rating it is public
SCALE = 0.01  # standard deviation of first vectors; those of N(0, 1) end with an error that is 0.08 larger


class MatrixFactorisation:
    """Biased matrix factorisation, in NumPy."""

    def __init__(
        self, *, dimension: int = 64, penalty: float = 0.1, middle: float = MIDDLE, scale: float = SCALE
    ) -> None:
        self._dimension, self._penalty = dimension, np.float32(penalty)
        self._middle, self._scale = np.float32(middle), np.float32(scale)

    @property
    def row_width(self) -> int:
        """Return the length of an item's vector, and one for its bias."""
        return self._dimension + 1

    @property
    def dense_size(self) -> int:
        """Return zero: everything shared is in the table."""
        return 0

    @property
    def private_size(self) -> int:
        """Return the length of a person's vector, and one for the bias."""
        return self._dimension + 1

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return a small random vector and no bias."""
        private = random.standard_normal(self.private_size, dtype=np.float32) * self._scale
        private[-1] = 0
        return private

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the loss over the ratings and its gradients."""
        errors = self.scores(rows, dense, private, ratings.items) - ratings.values
        squares = np.dot(errors, errors)
        penalty = self._penalty * (errors.size * np.dot(private, private) + np.vdot(rows, rows))
        by_private = errors @ _with_one(rows) + self._penalty * np.float32(errors.size) * private
        return Gradients(
            float(squares + penalty), self._by_row(errors, rows, private), np.zeros(0, np.float32), 2 * by_private
        )

    def record_gradients(
        self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings
    ) -> tuple[Floats, Floats, Floats]:
        """Return what each rating alone gives: every number follows from one row, one rating and the private part."""
        errors = self.scores(rows, dense, private, ratings.items) - ratings.values
        by_private: Floats = 2 * (errors[:, np.newaxis] * _with_one(rows) + self._penalty * private)
        return self._by_row(errors, rows, private), np.zeros((errors.size, 0), np.float32), by_private

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return the predicted ratings."""
        if rows.shape != (items.size, self.row_width) or private.shape != (self.private_size,) or dense.size:
            raise PartError("matrix factorisation takes a row for each item, a private part and no dense part")
        # Not a matrix product: how BLAS sums a row depends on how many there are, and here each row stands alone.
        products: Floats = np.einsum("ij,j->i", rows[:, :-1], private[:-1])
        scores: Floats = products + rows[:, -1] + (self._middle + private[-1])
        return scores

    def _by_row(self, errors: Floats, rows: Floats, private: Floats) -> Floats:
        # With a one behind each vector the bias is a coordinate like any other.
        by_row: Floats = 2 * (np.outer(errors, _with_one(private)) + self._penalty * rows)
        return by_row


def _with_one(vectors: Floats) -> Floats:
    """Return the vectors with a one in place of the bias, which stands last."""
    copy = vectors.copy()
    copy[..., -1] = 1
    return copy
