"""A model whose loss is written in torch: autograd gives the gradients of rows, dense part and private part.

Outside, the dense and the private part are flat float32 vectors, which are summed, stored and sent. Inside, they
are named tensors, split from the vector in the order in which the subclass declares their shapes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import torch
from torch import Tensor

from secemb_sdk.errors import PartError
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_shared.randomness import Indices

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensors, Tensors], Tensor]  # of rows, dense part and private part


class TorchParts(ABC):
    """The three parts of a model, and its scores; a subclass defines its prediction."""

    def __init__(
        self, *, row_width: int, private: Shapes, dense: Shapes | None = None, private_scale: float = 0.01
    ) -> None:
        self._row_width, self._private_scale = row_width, private_scale
        self._private, self._dense = dict(private), dict(dense or {})

    @abstractmethod
    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return a score for each item; `rows[i]` is the row of `items[i]`."""

    @property
    def row_width(self) -> int:
        """Return the size of a row."""
        return self._row_width

    @property
    def dense_size(self) -> int:
        """Return the size of the dense part."""
        return size_of(self._dense)

    @property
    def private_size(self) -> int:
        """Return the size of the private part."""
        return size_of(self._private)

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return small random numbers, and zeros for tensors with the name `bias`."""
        parts = [
            np.zeros(prod(shape), np.float32)
            if name == "bias"
            else random.standard_normal(prod(shape), dtype=np.float32) * np.float32(self._private_scale)
            for name, shape in self._private.items()
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return a score for each item."""
        with torch.no_grad():
            parts = self.named(tensor(dense), tensor(private))
            scores: Floats = self.predict(tensor(rows), *parts, tensor(items)).numpy()
        return scores

    def named(self, dense: Tensor, private: Tensor) -> tuple[Tensors, Tensors]:
        """Return the dense and the private part split into their named tensors."""
        return cut(dense, self._dense), cut(private, self._private)

    def differentiate(self, loss: Loss, rows: Floats, dense: Floats, private: Floats) -> Gradients:
        """Return a loss of rows, dense part and private part, and its gradients by each of them."""
        leaves = [tensor(part).requires_grad_() for part in (rows, dense, private)]
        with torch.enable_grad():
            value = loss(leaves[0], *self.named(leaves[1], leaves[2]))
            found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        by_row, by_dense, by_private = (gradient.numpy() for gradient in found)
        return Gradients(float(value.detach()), by_row, by_dense, by_private)


class TorchModel(TorchParts):
    """A recommender for ratings or choices; a subclass defines its prediction and its loss."""

    def __init__(
        self,
        *,
        row_width: int,
        private: Shapes,
        dense: Shapes | None = None,
        private_scale: float = 0.01,
        private_steps: int = 10,
        private_rate: float = 0.05,
    ) -> None:
        super().__init__(row_width=row_width, private=private, dense=dense, private_scale=private_scale)
        self._private_steps, self._private_rate = private_steps, private_rate

    @abstractmethod
    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor, values: Tensor) -> Tensor:
        """Return the loss over a device's ratings, one number; `values[i]` is the rating of `items[i]`."""

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part after a few steps of Adam; a subclass may override this with a faster method."""
        fixed = tensor(rows), tensor(dense)
        items, values = tensor(ratings.items), tensor(ratings.values)
        found = torch.tensor(private, requires_grad=True)
        optimiser = torch.optim.Adam([found], lr=self._private_rate)
        for _ in range(self._private_steps):
            with torch.enable_grad():
                loss = self.loss(fixed[0], *self.named(fixed[1], found), items, values)
            (found.grad,) = torch.autograd.grad(loss, [found], allow_unused=True, materialize_grads=True)
            optimiser.step()
        fitted: Floats = found.detach().numpy()
        return fitted

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the loss over the ratings and its gradients."""
        items, values = tensor(ratings.items), tensor(ratings.values)

        def loss(rows: Tensor, dense: Tensors, private: Tensors) -> Tensor:
            return self.loss(rows, dense, private, items, values)

        return self.differentiate(loss, rows, dense, private)


def compute_alone() -> None:
    """Limit torch to one thread in this process: one person's ratings are too few for several."""
    torch.set_num_threads(1)


def size_of(shapes: Shapes) -> int:
    """Return the total size of tensors of these shapes."""
    return sum(map(prod, shapes.values()))


def tensor(values: Floats | Indices) -> Tensor:
    """Return a tensor over the same memory; a read-only array is copied, because torch has no read-only tensors."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def cut(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """Return a vector split into named tensors."""
    if flat.numel() != size_of(shapes):
        raise PartError("this part does not match the model's size; open the device with the task's model")
    pieces = torch.split(flat, [prod(shape) for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
