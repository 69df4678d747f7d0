"""Models of events in time order in torch: a subclass defines its loss, and the state after events."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor

from secemb_sdk.errors import PartError
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_sdk.models.torch.base import Shapes, Tensors, TorchParts, tensor
from secemb_sdk.models.window import draw_window
from secemb_shared.randomness import Indices, RandomBytes

STATE = "state"  # the private tensor with the state after the events


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """A window as tensors of row indices; −1: no row."""

    events: Tensor  # (n,)
    strangers: Tensor  # (m,)
    seed: int
    items: Tensor  # (rows,) items of the rows
    values: Tensor  # (rows,) the values that the model drew with them

    @classmethod
    def of(cls, ratings: Ratings) -> Self:
        """Return a window as row indices."""
        window = ratings.window
        if window is None:
            raise PartError("a model of events needs events in time order; ratings are not enough")
        places = tensor(window.events), tensor(window.strangers)
        return cls(*places, window.seed, tensor(ratings.items), tensor(ratings.values))


class Dropout:
    """Dropout whose masks follow from a seed, so that a repeated round, or a plain one, has the same masks."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate, self._generator = rate, torch.Generator()
        self._generator.manual_seed(seed & (2**63 - 1))

    def __call__(self, values: Tensor) -> Tensor:
        """Return the values with some of them zeroed, and the others scaled up to compensate."""
        if not self._rate:
            return values
        kept = torch.rand(prod(values.shape), generator=self._generator) >= self._rate
        return values * kept.view(values.shape) / (1 - self._rate)


class TorchSequenceModel(TorchParts):
    """A model that predicts the next event. Its private tensor `state` is computed from events; others are learned."""

    def __init__(
        self,
        *,
        length: int,
        row_width: int,
        private: Shapes,
        dense: Shapes | None = None,
        private_scale: float = 0.01,
        span: int | None = None,
    ) -> None:
        super().__init__(row_width=row_width, private=private, dense=dense, private_scale=private_scale)
        self._length, self._span = length, span or length + 1

    @abstractmethod
    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, places: Places) -> Tensor:
        """Return the loss over the events of a window, one number."""

    @abstractmethod
    def state(self, rows: Tensor, dense: Tensors, private: Tensors, events: Tensor) -> Tensor:
        """Return the tensor `state` after events, given as row indices."""

    @property
    def length(self) -> int:
        """Return how many past events the model uses."""
        return self._length

    @property
    def room(self) -> int:
        """Return the size of a window: its events, and as many strangers less one; fewer events leave room for more."""
        return 2 * self._span - 1

    def draw(self, events: Indices, *, items: int, room: int, random_bytes: RandomBytes) -> Ratings:
        """Return consecutive events, by default as many as the model uses and the one that follows them."""
        return draw_window(events, items=items, length=self._span, room=room, random_bytes=random_bytes)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the loss over the window and its gradients."""
        places = Places.of(ratings)

        def loss(rows: Tensor, dense: Tensors, private: Tensors) -> Tensor:
            return self.loss(rows, dense, private, places)

        return self.differentiate(loss, rows, dense, private)

    def follow(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part with the state after the events."""
        events = Places.of(ratings).events
        events = events[events >= 0][-self._length :]
        with torch.no_grad():
            whole = torch.tensor(private)
            shared, own = self.named(tensor(dense), whole)
            own[STATE].copy_(self.state(tensor(rows), shared, own, events))
        followed: Floats = whole.numpy()
        return followed


def tell_apart(states: Tensor, outputs: Tensor, following: Tensor, strangers: Tensor) -> Tensor:
    """Return the summed loss of each next item among all strangers: −log of its softmax probability.

    `outputs` has a line for each row: the vector to multiply by a state, and the bias. −1 in the others: no row.
    """
    there = following >= 0
    chosen, others = outputs[following[there]], outputs[strangers[strangers >= 0]]
    score = (states[there] * chosen[:, :-1]).sum(dim=1) + chosen[:, -1]
    of_others = torch.addmm(others[:, -1], states[there], others[:, :-1].T)
    return (torch.logaddexp(score, torch.logsumexp(of_others, dim=1)) - score).sum()
