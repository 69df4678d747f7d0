"""SASRec (Kang and McAuley 2018): predicts the next event by causal self-attention over a person's events.

    x      √d · e(event) + position, for the newest L events; the newest has the last position
    block  x ← x + attention(norm(x)),  x ← x + network(norm(x))      network: d → d → d, with ReLU
    score  ⟨norm(x), e(item)⟩ + b(item)
    loss   Σ over the events of −log softmax(score of the next, among it and all strangers of the window)

An item's row is its vector e and its bias b; the rest is the dense part. Each norm multiplies by one plus its weights,
because initial weights are small. No position sees a later one.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from secemb_sdk.models.torch.base import Tensors
from secemb_sdk.models.torch.sequence import STATE, Dropout, Places, TorchSequenceModel, tell_apart

LENGTH, DIMENSION, BLOCKS, DROPOUT = 50, 50, 2, 0.2
_EPSILON = 1e-8
_MATRICES = ("query", "key", "value", "hidden", "output")


class SelfAttention(TorchSequenceModel):
    """SASRec with one head."""

    def __init__(
        self, *, dimension: int = DIMENSION, length: int = LENGTH, blocks: int = BLOCKS, dropout: float = DROPOUT
    ) -> None:
        dense: dict[str, tuple[int, ...]] = {"position": (length, dimension)}
        for block in range(blocks):
            for name in _MATRICES:
                dense |= {f"{name} {block}": (dimension, dimension), f"{name} bias {block}": (dimension,)}
            for name in ("before attention", "before network"):
                dense |= {f"{name} {block}": (2, dimension)}
        dense["at the end"] = (2, dimension)
        super().__init__(length=length, row_width=dimension + 1, private={STATE: (dimension,)}, dense=dense)
        self._dimension, self._blocks, self._dropout = dimension, blocks, dropout

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, places: Places) -> Tensor:
        """Return the loss of predicting each event of the window, among the strangers, from the events before it."""
        events, following = places.events[:-1], places.events[1:]
        states = self.states(rows, dense, events, Dropout(self._dropout, places.seed))
        return tell_apart(states, rows, following.masked_fill(events < 0, -1), places.strangers)

    def state(self, rows: Tensor, dense: Tensors, private: Tensors, events: Tensor) -> Tensor:
        """Return the state after the last event."""
        if not events.numel():
            return torch.zeros(self._dimension)
        return self.states(rows, dense, events, Dropout(0, 0))[-1]

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the score of each item as the next event."""
        return rows[:, :-1] @ private[STATE] + rows[:, -1]

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        """Return the state after each of up to L events, (n, d); events without a row are masked."""
        count, known = events.numel(), events >= 0
        x = rows[events.clamp(min=0), :-1] * math.sqrt(self._dimension)
        x = dropout(x + dense["position"][self._length - count :])
        seen = torch.ones(count, count, dtype=torch.bool).tril() & (known | torch.eye(count, dtype=torch.bool))
        for block in range(self._blocks):
            x = x + self._attend(_norm(x, dense[f"before attention {block}"]), dense, block, seen, dropout)
            inner = _norm(x, dense[f"before network {block}"])
            hidden = dropout(torch.relu(_linear(inner, dense, "hidden", block)))
            x = x + dropout(_linear(hidden, dense, "output", block))
        return _norm(x, dense["at the end"])

    def _attend(self, x: Tensor, dense: Tensors, block: int, seen: Tensor, dropout: Dropout) -> Tensor:
        query, key, value = (_linear(x, dense, name, block) for name in _MATRICES[:3])
        likeness = (query @ key.T) / math.sqrt(self._dimension)
        shares = torch.softmax(likeness.masked_fill(~seen, -torch.inf), dim=1)
        return dropout(shares) @ value


def _linear(x: Tensor, dense: Tensors, name: str, block: int) -> Tensor:
    return torch.addmm(dense[f"{name} bias {block}"], x, dense[f"{name} {block}"])


def _norm(x: Tensor, weights: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], 1 + weights[0], weights[1], _EPSILON)
