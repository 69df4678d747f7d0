"""Models of ratings and of rankings in torch.

    ratings   Σ over the ratings of e² + penalty · (|private vectors|² + |row without its bias|²)
              +   person penalty · |private vectors|²   +   bias penalty · b²   +   dense penalty · |dense part|²
    ranking   as in `secemb_sdk.models.ranking`   +   dense penalty · |dense part|²

The first penalty counts once per rating, so that rare items and people with few ratings are not penalised more than
others; those of the person and of the dense part count once per device. The server regularises biases of items.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from secemb_sdk.errors import PartError
from secemb_sdk.models import ranking
from secemb_sdk.models.factorisation import SCALE
from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.ridge import Penalties, solve_cautiously, solve_ridge
from secemb_sdk.models.torch.base import Shapes, Tensors, TorchModel
from secemb_shared.messages.spec import BPR, SQUARED
from secemb_shared.randomness import Indices

Arrays = Mapping[str, Floats]
Places = Sequence[tuple[str, slice, tuple[int, ...]]]  # of the named parts of a vector, with their shapes
Product = Callable[[Floats, Floats], Floats]  # of two matrices
Slopes = tuple[Sequence[Floats], Sequence[Floats]]  # for the parts of a row and of the dense part; each is (n, …)


class RatingModel(TorchModel):
    """A model that is trained on ratings or on choices; a subclass defines `predict`.

    The last number of a row is the bias of its item. A private tensor with the name `bias` is the person's bias. Where
    the unit of privacy is a record, a subclass without `record_gradients` is called for one rating at a time.
    """

    fit_steps = 3  # linearisations of the prediction; if it is linear in the private part, one is enough

    def __init__(
        self,
        *,
        row_width: int,
        private: Shapes,
        dense: Shapes | None = None,
        private_scale: float,
        loss: str = SQUARED,
        penalty: float = Penalties.rating,
        person_penalty: float = Penalties.person,
        bias_penalty: float = Penalties.bias,
        dense_penalty: float = 0.0,
    ) -> None:
        super().__init__(row_width=row_width, private=private, dense=dense, private_scale=private_scale)
        self._loss_name, self._dense_penalty = loss, dense_penalty
        self._penalties = Penalties(rating=penalty, person=person_penalty, bias=bias_penalty)
        parts = [np.full(int(np.prod(shape)), name != "bias") for name, shape in private.items()]
        self._vectors: npt.NDArray[np.bool_] = np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor, values: Tensor) -> Tensor:
        """Return the error and the penalties."""
        scores = self.predict(rows, dense, private, items)
        held = self._dense_penalty * _squares(dense.values())
        if self._loss_name != SQUARED:
            return _rank(self._loss_name, scores, values) + held
        flat = torch.cat([part.flatten() for part in private.values()])
        diagonal = torch.from_numpy(self._penalties.diagonal(values.numel(), self._vectors)).to(flat.dtype)
        own = torch.dot(diagonal, flat.square()) + self._penalties.rating * _squares([rows[:, :-1]])
        return (scores - values).square().sum() + own + held

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the least-squares private part, by linearising the prediction and solving, a few times."""
        ranks = self._loss_name != SQUARED
        if self.fit_steps == 1:  # linear, so the result does not depend on the start
            private = np.zeros_like(private)
        for _ in range(self.fit_steps):
            scores, slopes = self._linearise(rows, dense, private, ratings.items)
            if ranks:
                fitted = np.zeros_like(private)
                fitted[self._vectors] = ranking.fit_vector(slopes[:, self._vectors], ratings.values)
                private = fitted
            else:
                diagonal = self._penalties.diagonal(ratings.values.size, self._vectors)
                rest = ratings.values - scores + slopes @ private
                if self.fit_steps == 1:
                    return solve_cautiously(slopes, rest, diagonal, self._vectors)
                private = solve_ridge(slopes, rest, diagonal)
        return private

    def _linearise(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> tuple[Floats, Floats]:
        """Return the predictions (n,) and their derivatives by the private part (n, private size)."""
        own = torch.tensor(private, requires_grad=True)
        with torch.enable_grad():
            scores = self.predict(torch.tensor(rows), *self.named(torch.tensor(dense), own), torch.tensor(items))
            each = torch.eye(len(rows), dtype=scores.dtype)
            (slopes,) = torch.autograd.grad(scores, own, each, is_grads_batched=True)
        return scores.detach().numpy(), slopes.numpy()


class TorchMatrixFactorisation(RatingModel):
    """The same model as `MatrixFactorisation`, to check its hand-written gradients."""

    fit_steps = 1

    def __init__(self, *, dimension: int = 64, scale: float = SCALE, **settings: float | str) -> None:
        shapes = {"vector": (dimension,), "bias": (1,)}
        super().__init__(row_width=dimension + 1, private=shapes, private_scale=scale, **settings)  # type: ignore[arg-type]

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        return rows[:, :-1] @ private["vector"] + rows[:, -1] + private["bias"]


def _rank(name: str, scores: Tensor, values: Tensor) -> Tensor:
    chosen, strangers = scores[values > 0], scores[values <= 0]
    if not chosen.numel() or not strangers.numel():
        return torch.zeros(())
    if name == BPR:
        return softplus(strangers[None, :] - chosen[:, None]).sum() / strangers.numel()
    return (torch.logaddexp(chosen, torch.logsumexp(strangers, dim=0)) - chosen).sum()


def _squares(parts: Iterable[Tensor]) -> Tensor:
    flat = [part.flatten() for part in parts]
    return sum((torch.dot(part, part) for part in flat), start=torch.zeros(()))  # takes half the time of square and sum


class RecordRatingModel(RatingModel):
    """A rating model with closed-form gradients of its prediction, for each rating separately."""

    @abstractmethod
    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error."""

    def named_arrays(self, dense: Floats, private: Floats) -> tuple[Arrays, Arrays]:
        """Return the dense and the private part split into named arrays: `named` without torch."""
        if dense.shape != (self.dense_size,) or private.shape != (self.private_size,):
            raise PartError("a part does not have the model's size; is this the task's model?")
        dense_places, private_places = self._places
        return _cut(dense, dense_places), _cut(private, private_places)

    @cached_property
    def _places(self) -> tuple[Places, Places]:
        return _places(self._dense), _places(self._private)

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return the gradients of each rating's own loss: for its row and for the dense part."""
        by_row, by_dense = self.record_slopes(rows, *self.named_arrays(dense, private), ratings)
        of_row = 2 * self._penalties.rating * rows
        of_row[:, -1] = 0  # the server regularises biases
        return _join(by_row, of_row), _join(by_dense, 2 * self._dense_penalty * dense)


def multiply(rows: Floats, matrix: Floats) -> Floats:
    """Return the product of each row with the matrix: (n, k), (k, m) → (n, m)."""
    product: Floats = np.einsum("ij,jk->ik", rows, matrix)  # sums without BLAS
    return product


def outer(first: Floats, second: Floats) -> Floats:
    """Return the outer product of each pair of rows: (n, k), (n, m) → (n, k, m)."""
    return first[:, :, np.newaxis] * second[:, np.newaxis, :]


def _places(shapes: Shapes) -> Places:
    ends = accumulate(map(prod, shapes.values()))
    return [
        (name, slice(end - prod(shape), end), shape) for (name, shape), end in zip(shapes.items(), ends, strict=True)
    ]


def _cut(flat: Floats, places: Places) -> Arrays:
    """Return the named parts of a vector; `TorchModel.named` for arrays."""
    return {name: flat[place].reshape(shape) for name, place, shape in places}


def _join(parts: Sequence[Floats], penalties: Floats) -> Floats:
    """Return the concatenated parts, plus the gradients of the penalties: (n, size) or one line for all."""
    joined = np.empty((len(parts[0]), penalties.shape[-1]), np.float32)
    end = 0
    for part in parts:
        flat = part.reshape(len(part), -1)
        own = slice(end, end := end + flat.shape[1])
        np.add(flat, penalties[..., own], out=joined[:, own])
    return joined
