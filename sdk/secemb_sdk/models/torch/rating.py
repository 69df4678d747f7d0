"""Models of ratings: the squared error over a device's ratings, with penalties.

    loss   Σ over the ratings of e² + penalty · (|private part|² + |row|²)   +   dense penalty · |dense part|²

The first penalty counts once per rating, so that rare items and people with few ratings are not held tighter than
others. The penalty of the dense part counts once per device.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import grad, vmap

from secemb_sdk.models.factorisation import MIDDLE, SCALE
from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.torch.base import Shapes, Tensors, TorchModel
from secemb_shared.randomness import Indices

Known = npt.NDArray[np.integer]  # (items, …)


class RatingModel(TorchModel):
    """A model that is trained on ratings; a subclass gives `predict`."""

    def __init__(
        self,
        *,
        row_width: int,
        private: Shapes,
        dense: Shapes | None = None,
        private_scale: float,
        penalty: float,
        dense_penalty: float = 0.0,
    ) -> None:
        super().__init__(row_width=row_width, private=private, dense=dense, private_scale=private_scale)
        self._penalty, self._dense_penalty = penalty, dense_penalty

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor, values: Tensor) -> Tensor:
        """Return the squared error and the penalties."""
        errors = self.predict(rows, dense, private, items) - values
        own = values.numel() * _squares(private.values()) + _squares([rows])
        return errors.square().sum() + self._penalty * own + self._dense_penalty * _squares(dense.values())

    def look_up(self, items: Indices) -> Known:
        """Return what `predict_from` needs to know of each item: its number, unless a subclass says more."""
        return items

    def predict_from(self, rows: Tensor, dense: Tensors, private: Tensors, known: Tensor) -> Tensor:
        """Return the predicted ratings of items that were looked up before, so that torch can trace every step."""
        return self.predict(rows, dense, private, known)

    def gradients_of_each(
        self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings
    ) -> tuple[Floats, Floats]:
        """Return the gradients of each rating's own loss: by its row (n, width), by the dense part (n, dense size).

        For simulations, which accept that the last bits of a line may depend on how many there are. A device does not,
        and asks for one rating after the other (`secemb_sdk.models.update`).
        """
        known = self.look_up(ratings.items)
        found = self._differentiate_each(*map(torch.tensor, (rows, dense, private, known, ratings.values)))
        by_row, by_dense = (gradient.numpy() for gradient in found)
        return by_row, by_dense

    def _differentiate_each(
        self, rows: Tensor, dense: Tensor, private: Tensor, known: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        each = vmap(grad(self._loss_of_one, argnums=(0, 1)), in_dims=(0, None, None, 0, 0))
        by_row, by_dense = each(rows, dense, private, known, values)
        return by_row, by_dense

    def _loss_of_one(self, row: Tensor, dense: Tensor, private: Tensor, known: Tensor, value: Tensor) -> Tensor:
        """Return the loss of one rating as if it were the only one."""
        parts = self.named(dense, private)
        error = self.predict_from(row.unsqueeze(0), *parts, known.unsqueeze(0)).squeeze(0) - value
        own = _squares([private]) + _squares([row])
        return error.square() + self._penalty * own + self._dense_penalty * _squares([dense])


class TorchMatrixFactorisation(RatingModel):
    """The same model as `MatrixFactorisation`, whose hand-written gradients are compared with this one's."""

    def __init__(
        self, *, dimension: int = 64, penalty: float = 0.1, middle: float = MIDDLE, scale: float = SCALE
    ) -> None:
        shapes = {"vector": (dimension,), "bias": (1,)}
        super().__init__(row_width=dimension + 1, private=shapes, private_scale=scale, penalty=penalty)
        self._middle = middle

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        return rows[:, :-1] @ private["vector"] + rows[:, -1] + (self._middle + private["bias"])


def _squares(parts: Iterable[Tensor]) -> Tensor:
    flat = [part.flatten() for part in parts]
    return sum((torch.dot(part, part) for part in flat), start=torch.zeros(()))  # half the time of square and sum
