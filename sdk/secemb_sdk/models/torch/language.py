"""A language model: a gated recurrent unit (GRU, Cho et al. 2014) reads words and predicts the next one.

    state  norm(GRU(√d · e(word), …) · W)
    score  ⟨state, e(word)⟩ + b(word) − log(rank of the word + 2.7)
    loss   Σ over the words of −log(exp(score of the next) / Σ exp(score) / chance), over all rows that were read

The table is both input and output: the row of a word is its vector e and its bias b. Words are numbered by how often
they occur, so the last term is Zipf's law: before training, a word is as likely as its rank implies.

A round reads the words of a few consecutive windows, whose probability is 1, and as many others as fit. A word that
was drawn with probability 1/5 stands for five like it, so the expected sum over the rows is the sum over all
words (sampled softmax with the correction of Bengio and Senécal 2008, which is often called logQ).

With `adapter_rank` the matrices M of the dense part are frozen, and A·B is learned for each (LoRA, Hu et al. 2021):
M + A·B with A of size n × rank and B of size rank × n. Frozen weights are public: every device has the same ones.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm, pad

from secemb_sdk.errors import ModelError
from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.rank_sample import SHIFT, sample_by_rank
from secemb_sdk.models.torch.base import Shapes, Tensors, cut, size_of, tensor
from secemb_sdk.models.torch.sequence import STATE, Dropout, Places, TorchSequenceModel
from secemb_sdk.models.window import draw_events, order
from secemb_sdk.words import split_words
from secemb_shared.randomness import Indices, RandomBytes

LENGTH, WINDOWS, DIMENSION, DROPOUT, ROOM = 64, 4, 64, 0.2, 512
_EPSILON = 1e-8
_SEED_BYTES = 8
_RECURRENT = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")  # as torch.nn.GRU calls them
_OUTPUT, _NORM = "output", "at the end"
_DOWN, _UP = " down", " up"  # suffixes to the name of a matrix: its two adapters
_BASE_SEED = 17


class LanguageModel(TorchSequenceModel):
    """A language model of one recurrent layer."""

    def __init__(
        self,
        *,
        dimension: int = DIMENSION,
        length: int = LENGTH,  # words of context
        windows: int = WINDOWS,  # consecutive windows of `length` words that a round learns from
        room: int = ROOM,
        dropout: float = DROPOUT,
        adapter_rank: int | None = None,  # None: the whole dense part is learned
        base: Floats | None = None,  # frozen weights of the whole dense part; None: random, same everywhere
    ) -> None:
        whole = _shapes(dimension)
        learned = whole if adapter_rank is None else _adapted(whole, adapter_rank)
        super().__init__(
            length=length,
            row_width=dimension + 1,
            private={STATE: (dimension,)},
            dense=learned,
            span=windows * length + 1,
        )
        self._dimension, self._room, self._dropout = dimension, room, dropout
        self._base = _base(whole, base) if adapter_rank is not None else None
        if base is not None and adapter_rank is None:
            raise ModelError("weights can be frozen only if the model has adapters; set adapter_rank as well")
        # A layer without its own weights: `functional_call` passes it those of the dense part.
        self._layer = torch.nn.GRU(dimension, dimension, device="meta")

    @property
    def room(self) -> int:
        """Return how many rows a round reads: the words of the windows, and others."""
        return self._room

    def split(self, text: str) -> list[str]:
        """Return the words of a text."""
        return split_words(text)

    def draw(self, events: Indices, *, items: int, room: int, random_bytes: RandomBytes) -> Ratings:
        """Return consecutive words, which fill at most half of the room, and others until it is full."""
        words = draw_events(events, min(self._span, room // 2), random_bytes)
        if not words.size:
            return order([], [], seed=0)
        known = np.unique(words)
        strangers, chances = sample_by_rank(known, items=items, count=room - known.size, random_bytes=random_bytes)
        drawn = order(words, strangers, seed=int.from_bytes(random_bytes(_SEED_BYTES), "little"))
        drawn.values[np.searchsorted(drawn.items, strangers)] = chances
        return drawn

    def named(self, dense: Tensor, private: Tensor) -> tuple[Tensors, Tensors]:
        """Return the dense and the private part as named tensors, added to the frozen weights."""
        shared, own = super().named(dense, private)
        if self._base is None:
            return shared, own
        return {name: frozen + _learned(shared, name) for name, frozen in self._base.items()}, own

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, places: Places) -> Tensor:
        """Return the loss of predicting each word, among all words, from those before it in its window."""
        events, following = (self._windows(one) for one in (places.events[:-1], places.events[1:]))
        states = self.states(rows, dense, events, Dropout(self._dropout, places.seed))
        there = (events >= 0) & (following >= 0)
        weighted = _scores(states[there], rows, places.items) - torch.log(places.values)
        return cross_entropy(weighted, following[there], reduction="sum")

    def state(self, rows: Tensor, dense: Tensors, private: Tensors, events: Tensor) -> Tensor:
        """Return the state after the last word."""
        if not events.numel():
            return torch.zeros(self._dimension)
        return self.states(rows, dense, events, Dropout(0, 0))[-1]

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the log probability of each word as the next one, up to a constant."""
        return _scores(private[STATE], rows, items)

    def log_chances(self, rows: Floats, dense: Floats, words: Indices) -> Floats:
        """Return the log probability of each word but the first, among all words of the table `rows`."""
        table, every = tensor(rows), torch.arange(len(rows))
        with torch.no_grad():
            shared, _ = self.named(tensor(dense), torch.zeros(self.private_size))
            states = self.states(table, shared, tensor(words[:-1]), Dropout(0, 0))
            found = torch.log_softmax(_scores(states, table, every), dim=1)
            chosen: Floats = found.gather(1, tensor(words[1:])[:, None])[:, 0].numpy()
        return chosen

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        """Return the state after each word, (n, d), or (n, windows, d); a word without a row contributes nothing."""
        known = (events >= 0)[..., None]
        x = dropout(rows[events.clamp(min=0), :-1] * known * math.sqrt(self._dimension))
        weights = {name: dense[name] for name in _RECURRENT}
        read, _ = torch.func.functional_call(self._layer, weights, (x,))
        gain, shift = 1 + dense[_NORM][0], dense[_NORM][1]
        return layer_norm(dropout(read) @ dense[_OUTPUT], (self._dimension,), gain, shift, _EPSILON)

    def _windows(self, events: Tensor) -> Tensor:
        """Return words as windows that are read in parallel, (length, windows), which takes a fraction of the steps."""
        missing = -events.numel() % self._length if events.numel() > self._length else 0
        return pad(events, (0, missing), value=-1).view(max(1, -(-events.numel() // self._length)), -1).T


def _scores(states: Tensor, rows: Tensor, items: Tensor) -> Tensor:
    """Return the score of each item after each state; `rows[i]` is the row of `items[i]`."""
    return states @ rows[:, :-1].T + rows[:, -1] - torch.log(items + SHIFT)


def _shapes(dimension: int) -> Shapes:
    gates = 3 * dimension
    recurrent = [(gates, dimension), (gates, dimension), (gates,), (gates,)]
    return {
        **dict(zip(_RECURRENT, recurrent, strict=True)),
        _OUTPUT: (dimension, dimension),
        _NORM: (2, dimension),
    }


def _adapted(whole: Shapes, rank: int) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes learned besides frozen weights: two thin matrices for each large one, and all small tensors."""
    if rank < 1:
        raise ModelError("adapter_rank must be at least 1; omit it to train the whole dense part")
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in whole.items():
        if _is_matrix(name, shape):
            found |= {name + _DOWN: (shape[0], rank), name + _UP: (rank, shape[1])}
        else:
            found[name] = shape
    return found


def _learned(shared: Tensors, name: str) -> Tensor:
    return shared[name] if name in shared else shared[name + _DOWN] @ shared[name + _UP]


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and name != _NORM


def _base(whole: Shapes, given: Floats | None) -> Tensors:
    """Return frozen weights: the given ones, or random ones that preserve the norm of their inputs."""
    if given is not None:
        return cut(torch.tensor(given), whole)
    generator, found = torch.Generator().manual_seed(_BASE_SEED), cut(torch.zeros(size_of(whole)), whole)
    for name, shape in whole.items():
        if _is_matrix(name, shape):
            found[name].normal_(0, 1 / math.sqrt(shape[1]), generator=generator)
    return found
