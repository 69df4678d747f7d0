"""A model whose arithmetic does not depend on the protocol's random bytes."""

import numpy as np

from secemb_sdk.errors import ModelError
from secemb_sdk.models import Floats, Gradients, Model, Ratings
from secemb_sdk.models.interface import (
    SequenceModel,
    SolvedModel,
    TextModel,
    follows,
    gives_records,
    is_solved,
    reads_texts,
)
from secemb_shared.randomness import Indices, RandomBytes

_FIRST = 11  # purpose of the seed
_FEW = 1  # items


class Reproducible:
    """The model on one person's device in a run with a seed.

    The placement of items decides the order in which a device gets its rows, and float sums depend on their order. Here
    rows are sorted by item before anything is computed, and the first private part comes from a seed, so that two runs
    with the same seed have the same weights to the last bit, whatever the transport.
    """

    def __init__(self, model: Model, *, seed: int, person: int) -> None:
        self.model, self._key = model, (seed, _FIRST, person)
        self._record_model = model if gives_records(model) else None

    @property
    def row_width(self) -> int:
        """Return how many numbers a row has."""
        return self.model.row_width

    @property
    def dense_size(self) -> int:
        """Return how many shared numbers there are outside the table."""
        return self.model.dense_size

    @property
    def private_size(self) -> int:
        """Return how many numbers stay on the device."""
        return self.model.private_size

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return the private part for the seed and the person."""
        return self.model.first_private(np.random.default_rng(self._key))

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the gradients, computed in the order of the items."""
        if _are_in_order(ratings):
            return self.model.gradients(rows, dense, private, ratings)
        order = np.argsort(ratings.items)
        found = self.model.gradients(rows[order], dense, private, ratings.take(order))
        return Gradients(found.loss, _put_back(found.rows, order), found.dense, found.private)

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return each rating's own gradients, whose order does not matter."""
        if self._record_model is None:
            raise ModelError("this model is asked for one rating at a time")
        return self._record_model.record_gradients(rows, dense, private, ratings)

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return the scores, computed one by one: the width of a matrix may change the last bit of a product.

        Except those of a contiguous prefix of items, such as the whole table, which has the same width in every run.
        """
        if items.size > _FEW and np.array_equal(items, np.arange(items.size)):
            return self.model.scores(rows, dense, private, items)
        found = [self.model.scores(rows[i : i + 1], dense, private, items[i : i + 1]) for i in range(items.size)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.float32)


class ReproducibleSolved(Reproducible):
    """The same for a model that solves its private part."""

    def __init__(self, model: SolvedModel, *, seed: int, person: int) -> None:
        super().__init__(model, seed=seed, person=person)
        self._solver = model

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part, found in the order of the items."""
        if _are_in_order(ratings):
            return self._solver.fit_private(rows, dense, private, ratings)
        order = np.argsort(ratings.items)
        return self._solver.fit_private(rows[order], dense, private, ratings.take(order))


class ReproducibleSequence(Reproducible):
    """The same for a model of events; its arithmetic follows their order, not that of the rows."""

    def __init__(self, model: SequenceModel, *, seed: int, person: int) -> None:
        super().__init__(model, seed=seed, person=person)
        self._follower = model

    @property
    def length(self) -> int:
        """Return how many past events the model uses."""
        return self._follower.length

    @property
    def room(self) -> int:
        """Return how many items a round has room for."""
        return self._follower.room

    def draw(self, events: Indices, *, items: int, room: int, random_bytes: RandomBytes) -> Ratings:
        """Return the training data of a round."""
        return self._follower.draw(events, items=items, room=room, random_bytes=random_bytes)

    def follow(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part after the events."""
        order = np.argsort(ratings.items)
        return self._follower.follow(rows[order], dense, private, ratings.take(order))


class ReproducibleText(ReproducibleSequence):
    """The same for a model of texts."""

    def __init__(self, model: TextModel, *, seed: int, person: int) -> None:
        super().__init__(model, seed=seed, person=person)
        self._reader = model

    def split(self, text: str) -> list[str]:
        """Return the words of a text."""
        return self._reader.split(text)

    def log_chances(self, rows: Floats, dense: Floats, words: Indices) -> Floats:
        """Return the log probability of each word but the first."""
        return self._reader.log_chances(rows, dense, words)


def reproducible(model: Model, *, seed: int, person: int) -> Reproducible:
    """Return the model on one person's device in a run with this seed."""
    if reads_texts(model):
        return ReproducibleText(model, seed=seed, person=person)
    if follows(model):
        return ReproducibleSequence(model, seed=seed, person=person)
    if is_solved(model):
        return ReproducibleSolved(model, seed=seed, person=person)
    return Reproducible(model, seed=seed, person=person)


def _are_in_order(ratings: Ratings) -> bool:
    return bool((ratings.items[1:] > ratings.items[:-1]).all())


def _put_back(values: Floats, order: Indices) -> Floats:
    result = np.empty_like(values)
    result[order] = values
    return result
