"""What a device asks of a model: gradients for its own ratings, and scores. Without torch.

A model has three parts. Its rows come from the shared table, one per item; its dense part is shared as a whole; its
private part never leaves the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices

Floats = npt.NDArray[np.float32]
Features = npt.NDArray[np.uint8]  # ones and zeros
FeatureLookup = Callable[[Indices], Features]  # (n,) items → (n, features)


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """One person's ratings on the task's scale (`Scale`), each item once.

    Where a task has no ratings: 1 for what the owner has chosen and 0 for others.
    """

    items: Indices = field(repr=False)  # (n,)
    values: Floats = field(repr=False)  # (n,)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """How the loss over a device's ratings changes with each of the three parts."""

    loss: float = field(repr=False)
    rows: Floats = field(repr=False)  # (n, row width), in the order of the ratings
    dense: Floats = field(repr=False)  # (dense size,)
    private: Floats = field(repr=False)  # (private size,)


class Model(Protocol):
    """A recommender as its device sees it."""

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
    """A model that finds the private part that suits the rows at hand, wherever it was before.

    A device that was never in a round, or has lost its state, is then as good as any other, and the shared part learns
    in a tenth of the rounds (federated reconstruction, Singhal et al. 2021).
    """

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        """Return the private part to go on with; `rows[i]` is the row of `ratings.items[i]`."""


class RecordModel(Model, Protocol):
    """A model that finds the gradients of many ratings at once, each as if it were the only one."""

    def record_gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> tuple[Floats, Floats]:
        """Return the gradients of each rating's own loss by its row, (n, row width), and by the dense part, (n, size).

        Each line depends on its own rating alone, to the last bit: where the unit of privacy is a record, the promise
        rests on it. A model that cannot do this leaves the method out, and is asked for one rating at a time.
        """


# A look at the method, not `isinstance`: that costs as much as the gradients of a dozen ratings.
def is_solved(model: Model) -> TypeGuard[SolvedModel]:
    """Tell whether a model can find its private part."""
    return hasattr(model, "fit_private")


def gives_records(model: Model) -> TypeGuard[RecordModel]:
    """Tell whether a model can find the gradients of many ratings at once."""
    return hasattr(model, "record_gradients")
