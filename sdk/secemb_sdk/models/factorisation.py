"""Biased matrix factorisation with hand-written gradients: the model of the base install.

    score     b_u + b_i + ⟨p_u, q_i⟩
    ratings   Σ over the device's ratings of e² + penalty · (|p_u|² + |q_i|²)   +   person penalty · |p_u|²
              + bias penalty · b_u²
    ranking   the losses of `secemb_sdk.models.ranking`, over items that the owner has chosen and strangers

An item's row is its vector q_i followed by its bias b_i, which starts at the task's centre. The private part is the
person's vector p_u followed by b_u. Penalties that count once per row, however often it is rated, are the server's.
"""

import numpy as np
import numpy.typing as npt

from secemb_sdk.errors import PartError
from secemb_sdk.models import ranking
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_sdk.models.ridge import Penalties, solve_cautiously
from secemb_shared.messages.spec import SQUARED
from secemb_shared.randomness import Indices

SCALE = 0.05  # standard deviation of initial vectors


class MatrixFactorisation:
    """Biased matrix factorisation, in NumPy."""

    def __init__(
        self,
        *,
        dimension: int = 64,
        loss: str = SQUARED,
        penalty: float = Penalties.rating,
        person_penalty: float = Penalties.person,
        bias_penalty: float = Penalties.bias,
        scale: float = SCALE,
    ) -> None:
        self._dimension, self._loss, self._scale = dimension, loss, np.float32(scale)
        self._penalties = Penalties(rating=penalty, person=person_penalty, bias=bias_penalty)
        self._vectors = np.arange(dimension + 1) < dimension

    @property
    def row_width(self) -> int:
        """Return the length of an item's vector, plus one for its bias."""
        return self._dimension + 1

    @property
    def dense_size(self) -> int:
        """Return zero: everything shared is in the table."""
        return 0

    @property
    def private_size(self) -> int:
        """Return the length of a person's vector, plus one for the bias."""
        return self._dimension + 1

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return a small random vector and no bias."""
        private = random.standard_normal(self.private_size, dtype=np.float32) * self._scale
        private[-1] = 0
        return private

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part for these rows and ratings, by a ridge regression that shrinks the vector."""
        if self._loss != SQUARED:
            return np.append(ranking.fit_vector(rows[:, :-1], ratings.values), np.float32(0))
        rest = ratings.values - rows[:, -1]
        diagonal = self._penalties.diagonal(rest.size, self._vectors)
        return solve_cautiously(_with_one(rows), rest, diagonal, self._vectors)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the loss over the ratings and its gradients."""
        scores, none = self.scores(rows, dense, private, ratings.items), np.zeros(0, np.float32)
        if self._loss != SQUARED:
            loss, slopes = ranking.LOSSES[self._loss](scores, ratings.values)
            return Gradients(loss, np.outer(slopes, _with_one(private)), none, slopes @ _with_one(rows))
        errors = scores - ratings.values
        diagonal = self._penalties.diagonal(errors.size, self._vectors)
        vectors = rows[:, :-1]
        loss = np.dot(errors, errors) + np.dot(diagonal, private * private)
        loss += self._penalties.rating * np.vdot(vectors, vectors)
        by_private = errors @ _with_one(rows) + diagonal * private
        return Gradients(float(loss), self._by_row(errors, rows, private), none, 2 * by_private)

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return each rating's own gradients: each depends only on one row, one rating and the private part."""
        errors = self.scores(rows, dense, private, ratings.items) - ratings.values
        return self._by_row(errors, rows, private), np.zeros((errors.size, 0), np.float32)

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return the predicted ratings, or the scores that items are ranked by."""
        if rows.shape != (items.size, self.row_width) or private.shape != (self.private_size,) or dense.size:
            raise PartError("matrix factorisation needs a row for each item, a private part and no dense part")
        # Not a matrix product: how BLAS sums a row depends on the number of rows, but rows must be independent here.
        products: Floats = np.einsum("ij,j->i", rows[:, :-1], private[:-1])
        scores: Floats = products + rows[:, -1] + private[-1]
        return scores

    def _by_row(self, errors: Floats, rows: Floats, private: Floats) -> Floats:
        # With a one behind each vector the bias is a coordinate like any other; only vectors have a penalty here.
        by_row: Floats = np.multiply.outer(2 * errors, _with_one(private))
        by_row[:, :-1] += np.float32(2 * self._penalties.rating) * rows[:, :-1]
        return by_row


def _with_one(vectors: Floats) -> npt.NDArray[np.float32]:
    """Return the vectors with a one in place of the bias, which stands last."""
    copy = vectors.copy()
    copy[..., -1] = 1
    return copy
