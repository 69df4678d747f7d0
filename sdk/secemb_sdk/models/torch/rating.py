"""Models of ratings: the squared error over a device's ratings, with penalties.

    loss   Σ over the ratings of e² + penalty · (|private part|² + |row|²)   +   dense penalty · |dense part|²

The first penalty counts once per rating, so that rare items and people with few ratings are not held tighter than
others. The penalty of the dense part counts once per device.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from secemb_sdk.models.factorisation import MIDDLE, SCALE
from secemb_sdk.models.torch.base import Shapes, Tensors, TorchModel


class RatingModel(TorchModel):
    """A model that is trained on ratings; a subclass gives `predict`.

    Where the unit of privacy is a record, a subclass without `record_gradients` is asked for one rating at a time.
    """

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
