"""Caser (Tang and Wang 2018): predicts the next event by convolutions over the newest events and a private vector.

    x       √d · e(event) for the newest H events, zeros where there are fewer
    z       ReLU(linear([for each height 1..H: the largest ReLU(filter(x)) over time; sums of x weighted over time]))
    p       Σ v(event) / √(number of events), for the newest L events
    score   ⟨z, w(item)⟩ + ⟨p, v(item)⟩ + b(item)
    loss    Σ over the events of −log softmax(score of the next, among it and all strangers of the window)

An item's row is its input vector e, its output vector [w, v] and its bias b; the rest is the dense part. No position
sees a later event.

The person's vector p is one step of descent from zero on Σ log(1 + exp(−⟨p, v(event)⟩)). In the paper p is stored
and updated in each round. Computed from the events, it is as good on a new device as on any other.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from secemb_sdk.models.torch.base import Tensors
from secemb_sdk.models.torch.sequence import STATE, Dropout, Places, TorchSequenceModel, tell_apart

LENGTH, HEIGHT, DIMENSION, DROPOUT = 50, 5, 50, 0.5
_HORIZONTAL, _VERTICAL = 16, 4  # number of filters of each height, and of filters over the whole height


class Convolution(TorchSequenceModel):
    """Caser. The filters look back `height` events, the person's vector `length`."""

    def __init__(
        self,
        *,
        dimension: int = DIMENSION,
        length: int = LENGTH,
        height: int = HEIGHT,
        horizontal: int = _HORIZONTAL,
        vertical: int = _VERTICAL,
        dropout: float = DROPOUT,
    ) -> None:
        dense: dict[str, tuple[int, ...]] = {}
        for one in range(1, height + 1):
            dense |= {f"filters {one}": (one * dimension, horizontal), f"filters bias {one}": (horizontal,)}
        dense |= {"vertical": (height, vertical), "vertical bias": (vertical,)}
        dense |= {"linear": (height * horizontal + vertical * dimension, dimension), "linear bias": (dimension,)}
        super().__init__(length=length, row_width=3 * dimension + 1, private={STATE: (2 * dimension,)}, dense=dense)
        self._dimension, self._height, self._dropout = dimension, height, dropout

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, places: Places) -> Tensor:
        """Return the loss of predicting each event of the window, among the strangers, from the events before it."""
        states = self.states(rows, dense, places.events[:-1], Dropout(self._dropout, places.seed))
        return tell_apart(states, rows[:, self._dimension :], places.events[1:], places.strangers)

    def state(self, rows: Tensor, dense: Tensors, private: Tensors, events: Tensor) -> Tensor:
        """Return the state after the last event."""
        if not events.numel():
            return rows.new_zeros(2 * self._dimension)
        return self.states(rows, dense, events, Dropout(0, 0))[-1]

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the score of each item as the next event."""
        return rows[:, self._dimension : -1] @ private[STATE] + rows[:, -1]

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        """Return z and p after each event, (n, 2d); an event without a row contributes nothing."""
        known = (events >= 0)[:, None]
        found = rows[events.clamp(min=0)] * known
        z = self._convolve(found[:, : self._dimension] * math.sqrt(self._dimension), dense, dropout)
        return torch.cat([z, _fit(found[:, 2 * self._dimension : -1], known)], dim=1)

    def _convolve(self, x: Tensor, dense: Tensors, dropout: Dropout) -> Tensor:
        """Return z after each event, (n, d)."""
        x = pad(x, (0, 0, self._height - 1, 0))  # (n + H − 1, d); zeros pad the time before the first event
        parts = []
        for height in range(1, self._height + 1):
            pieces = x.unfold(0, height, 1).transpose(1, 2).flatten(1)  # (n + H − height, height · d)
            found = torch.relu(_linear(pieces, dense, f"filters {height}", f"filters bias {height}"))
            parts.append(found.unfold(0, self._height - height + 1, 1).amax(dim=2))  # the maximum over each H events
        over_time = x.unfold(0, self._height, 1) @ dense["vertical"] + dense["vertical bias"]  # (n, d, vertical)
        both = dropout(torch.cat([*parts, over_time.flatten(1)], dim=1))
        return torch.relu(_linear(both, dense, "linear", "linear bias"))


def _linear(x: Tensor, dense: Tensors, weights: str, bias: str) -> Tensor:
    return torch.addmm(dense[bias], x, dense[weights])


def _fit(vectors: Tensor, known: Tensor) -> Tensor:
    """Return p after each event: it depends only on the events up to there, not on stored state."""
    count = known.cumsum(dim=0).clamp(min=1).to(vectors.dtype)
    return vectors.cumsum(dim=0) / count.sqrt()
