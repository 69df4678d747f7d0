"""The interface of a model: gradients for a device's own ratings or events, and scores. Without torch.

A model has three parts. Its rows come from the shared table, one per item; its dense part is shared as a whole; its
private part never leaves the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices, RandomBytes

Floats = npt.NDArray[np.float32]
Features = npt.NDArray[np.uint8]  # ones and zeros
FeatureLookup = Callable[[Indices], Features]  # (n,) items → (n, features)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some of a person's events in time order. Each is an index into the items whose rows are available; −1: no row."""

    events: Indices = field(repr=False)  # (n,)
    strangers: Indices = field(repr=False)  # (m,) the items that events are distinguished from
    seed: int = field(repr=False)  # for random draws during training, such as dropout

    def move(self, to: Indices) -> "Window":
        """Return the same events after the item at index i has moved to `to[i]`, or lost its row if that is −1."""
        events, strangers = (np.where(one < 0, -1, to[one]) for one in (self.events, self.strangers))
        return Window(events, strangers, self.seed)


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """One person's ratings on the task's scale (`Scale`), each item once.

    If a task has no ratings: 1 for what the owner has chosen and 0 for others. If it learns from events, the
    window gives the order in which they were chosen. The value of an item drawn by the model may be the probability
    of drawing it.
    """

    items: Indices = field(repr=False)  # (n,)
    values: Floats = field(repr=False)  # (n,)
    window: Window | None = field(default=None, repr=False)

    def take(self, places: Indices) -> "Ratings":
        """Return the ratings at some indices, in this order; events of other items then have no row."""
        window = self.window
        if window is not None:
            to = np.full(self.items.size, -1, dtype=np.int64)
            to[places] = np.arange(places.size)
            window = window.move(to)
        return Ratings(self.items[places], self.values[places], window)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """How the loss over a device's ratings changes with each of the three parts."""

    loss: float = field(repr=False)
    rows: Floats = field(repr=False)  # (n, row width), in the order of the ratings
    dense: Floats = field(repr=False)  # (dense size,)
    private: Floats = field(repr=False)  # (private size,)


class Model(Protocol):
    """A recommender from the point of view of its device."""

    @property
    def row_width(self) -> int:
        """Return the size of a row."""

    @property
    def dense_size(self) -> int:
        """Return the size of the dense part."""

    @property
    def private_size(self) -> int:
        """Return the size of the private part."""

    def first_private(self, random: np.random.Generator) -> Floats:
        """Return the private part of a new device, shape (private size,)."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        """Return the loss over the ratings and its gradients; `rows[i]` is the row of `ratings.items[i]`."""

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        """Return a score for each item, larger for what the person likes better; `rows[i]` is the row of `items[i]`."""


class SolvedModel(Model, Protocol):
    """A model that can solve for the private part that fits the rows at hand, from any state.

    A device that is new, or has lost its state, then does as well as any other, and the shared part learns
    in a tenth of the rounds (federated reconstruction, Singhal et al. 2021).
    """

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part to continue with; `rows[i]` is the row of `ratings.items[i]`."""


class SequenceModel(Model, Protocol):
    """A model of events in time order, which predicts the next one. Its ratings have a window.

    The private part holds the state after the events, in addition to what the model learns about the person.
    """

    @property
    def length(self) -> int:
        """Return how many past events the model uses."""

    @property
    def room(self) -> int:
        """Return the default capacity of a round in different items: m' of the paper."""

    def draw(self, events: Indices, *, items: int, room: int, random_bytes: RandomBytes) -> Ratings:
        """Return the training data of a round: events of one person, and strangers from a catalogue of this size.

        There is room for `room` different items. A round in which there is nothing to learn gets no items.
        """

    def follow(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part after the events of a window; `scores` then predicts what comes next."""


class TextModel(SequenceModel, Protocol):
    """A model of events that are words. Its task's catalogue is the vocabulary, and its devices log texts."""

    def split(self, text: str) -> list[str]:
        """Return the words of a text, as spelled in the vocabulary."""

    def log_chances(self, rows: Floats, dense: Floats, words: Indices) -> Floats:
        """Return the log probability of each word but the first, given those before it.

        `rows` is the whole table. There are at most `length` + 1 words.
        """


class RecordModel(Model, Protocol):
    """A model that computes the gradients of many ratings at once, each as if it were the only one."""

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return the gradients of each rating's own loss by its row, (n, row width), and by the dense part, (n, size).

        Each line depends only on its own rating, to the last bit: where the unit of privacy is a record, the guarantee
        relies on it. A model that cannot do this omits the method, and is called for one rating at a time.
        """


# A look-up of the method, because `isinstance` costs as much as the gradients of a dozen ratings.
def is_solved(model: Model) -> TypeGuard[SolvedModel]:
    """Tell whether a model can solve for its private part."""
    return hasattr(model, "fit_private")


def follows(model: Model) -> TypeGuard[SequenceModel]:
    """Tell whether a model learns from events in time order."""
    return hasattr(model, "follow")


def reads_texts(model: Model) -> TypeGuard[TextModel]:
    """Tell whether a model learns from texts."""
    return hasattr(model, "split")


def gives_records(model: Model) -> TypeGuard[RecordModel]:
    """Tell whether a model can compute the gradients of many ratings at once."""
    return hasattr(model, "record_gradients")
