"""Models of ratings: the squared error over a device's ratings, with penalties.

    loss   Σ over the ratings of e² + penalty · (|private part|² + |row|²)   +   dense penalty · |dense part|²

The first penalty counts once for each rating, so that rare items and quiet people are held no tighter than the others.
The dense part belongs to everybody and pays once for each device.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.torch.base import Parts, Shapes, TorchModel


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

    def loss(self, rows: Tensor, dense: Parts, private: Parts, items: Tensor, values: Tensor) -> Tensor:
        """Return the squared error and the penalties."""
        errors = self.predict(rows, dense, private, items) - values
        own = values.numel() * _squares(private.values()) + _squares([rows])
        return errors.square().sum() + self._penalty * own + self._dense_penalty * _squares(dense.values())

    def losses(self, rows: Tensor, dense: Parts, private: Parts, items: Tensor, values: Tensor) -> Tensor:
        """Return the loss of each rating as if it were the only one; right where `predict` looks at each row alone."""
        errors = self.predict(rows, dense, private, items) - values
        own = _squares(private.values()) + rows.square().sum(dim=1)
        return errors.square() + self._penalty * own + self._dense_penalty * _squares(dense.values())

    def gradients_of_each(
        self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings
    ) -> tuple[Floats, Floats]:
        """Return the gradient of each rating's own loss: by its row (n, width) and by the dense part (n, dense size).

        For simulations. It takes for granted that `predict` looks at each row alone; a device takes nothing for granted
        and asks for one rating after the other (`secemb_sdk.models.clipping`).
        """
        own, shared = torch.tensor(rows, requires_grad=True), torch.tensor(dense, requires_grad=True)
        parts = self.named(shared, torch.tensor(private))
        losses = self.losses(own, *parts, torch.tensor(ratings.items), torch.tensor(ratings.values))
        (by_row,) = torch.autograd.grad(losses.sum(), own, retain_graph=True)
        one_by_one = torch.eye(losses.numel())
        (by_dense,) = torch.autograd.grad(losses, shared, one_by_one, is_grads_batched=True, materialize_grads=True)
        return by_row.numpy(), by_dense.numpy()


def _squares(parts: Iterable[Tensor]) -> Tensor:
    flat = [part.flatten() for part in parts]
    return sum((torch.dot(part, part) for part in flat), start=torch.zeros(()))  # half the time of square and sum
