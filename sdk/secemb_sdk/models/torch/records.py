"""Gradients of many ratings at once, in which each rating stands alone.

Line i of every result follows from line i of the arguments, to the last bit: how many other lines there are, and which,
does not matter. Arithmetic element by element has this property. A matrix product does not: how BLAS adds up a row may
depend on how many rows there are. So models give formulas in NumPy; autograd would take one rating at a time.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from secemb_sdk.errors import PartError
from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.torch.base import Shapes
from secemb_sdk.models.torch.rating import RatingModel

Arrays = Mapping[str, Floats]
Slopes = tuple[Sequence[Floats], Sequence[Floats]]  # by the parts of a row and of the dense part; each is (n, …)


class RecordRatingModel(RatingModel):
    """A model of ratings that gives the gradients of its prediction by formula, for each rating alone."""

    @abstractmethod
    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error."""

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return the gradients of each rating's own loss: by its row and by the dense part."""
        parts = _cut(dense, self._dense), _cut(private, self._private)
        by_row, by_dense = self.record_slopes(rows, *parts, ratings)
        of_row = 2 * self._penalties.rating * rows
        of_row[:, -1] = 0  # a bias is the server's to hold
        return _join(by_row, of_row), _join(by_dense, 2 * self._dense_penalty * dense)


def multiply(rows: Floats, matrix: Floats) -> Floats:
    """Return the product of each row with the matrix: (n, k), (k, m) → (n, m)."""
    product: Floats = np.einsum("ij,jk->ik", rows, matrix)  # adds up by itself, without BLAS
    return product


def outer(first: Floats, second: Floats) -> Floats:
    """Return the outer product of each pair of rows: (n, k), (n, m) → (n, k, m)."""
    return first[:, :, np.newaxis] * second[:, np.newaxis, :]


def _cut(flat: Floats, shapes: Shapes) -> Arrays:
    """Return the named parts of a vector; `TorchModel.named` for arrays."""
    ends = list(accumulate(map(prod, shapes.values())))
    if flat.shape != (ends[-1] if ends else 0,):
        raise PartError("a part does not have the model's size; is this the task's model?")
    return {
        name: flat[end - prod(shape) : end].reshape(shape)
        for (name, shape), end in zip(shapes.items(), ends, strict=True)
    }


def _join(parts: Sequence[Floats], penalties: Floats) -> Floats:
    """Return the parts side by side, plus the gradients of the penalties: (n, size) or one line for all."""
    joined = np.empty((len(parts[0]), penalties.shape[-1]), np.float32)
    end = 0
    for part in parts:
        flat = part.reshape(len(part), -1)
        own = slice(end, end := end + flat.shape[1])
        np.add(flat, penalties[..., own], out=joined[:, own])
    return joined
