"""One round of training on a device: the update, and the next private part."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_sdk.errors import ModelError, NotFiniteLossError, PartError
from secemb_sdk.models.interface import Floats, Model, Ratings, SolvedModel, follows, is_solved
from secemb_shared.messages import TaskSpec

Numbers = npt.NDArray[np.floating]

_NOT_FINITE = "the loss or its gradient is not finite; check the ratings and learning rates"
BETAS, EPS = (0.9, 0.999), 1e-8  # as in torch.optim.Adam


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateState:
    """The private part of a model and the state of its optimiser: the state that a device keeps between rounds."""

    values: Floats = field(repr=False)  # (private size,), as are the next two
    first: Floats = field(repr=False)  # Adam's mean gradient
    second: Floats = field(repr=False)  # Adam's mean squared gradient
    steps: int = 0

    @classmethod
    def begin(cls, model: Model, random: np.random.Generator) -> Self:
        """Return the state of a device before its first round."""
        values = model.first_private(random)
        return cls(values=values, first=np.zeros_like(values), second=np.zeros_like(values))

    def step(self, gradient: Floats, *, rate: float) -> "PrivateState":
        """Return the state after one step of Adam."""
        steps = self.steps + 1
        first = self.first + np.float32(1 - BETAS[0]) * (gradient - self.first)
        second = np.float32(BETAS[1]) * self.second + np.float32(1 - BETAS[1]) * gradient * gradient
        size, root = np.float32(rate / (1 - BETAS[0] ** steps)), np.float32((1 - BETAS[1] ** steps) ** 0.5)
        spread: Floats = np.sqrt(second)
        values = self.values - size * first / (spread / root + np.float32(EPS))
        return PrivateState(values=values, first=first, second=second, steps=steps)


def learn(
    model: Model,
    state: PrivateState,
    rows: Floats,
    dense: Floats,
    ratings: Ratings,
    *,
    rate: float,
    epochs: int = 1,
) -> tuple[Floats, Floats, PrivateState]:
    """Return the updates to upload, one per row and one for the dense part, and the next private state.

    A model that can solve for its private part does so first. Others update it by one step of Adam in each epoch.

    `rows[i]` is the row of `ratings.items[i]`; the updates of rows come in the same order. Raises `NotFiniteLossError`
    if there is nothing to learn from: the device then uploads zeros, because a missing upload would reveal that, and
    keeps its state.
    """
    _check(model, rows, dense, ratings, epochs)
    if is_solved(model):
        return _learn_solved(model, state, rows, dense, ratings)
    by_row, by_dense, state = _learn_once(model, state, rows, dense, ratings, rate)
    for _ in range(epochs - 1):
        more_by_row, more_by_dense, state = _learn_once(model, state, rows, dense, ratings, rate)
        by_row, by_dense = by_row + more_by_row, by_dense + more_by_dense
    return by_row, by_dense, state


def fit_bound(values: Numbers, task: TaskSpec) -> tuple[Numbers, bool]:
    """Return the values clipped to the task's bound for one element, and whether any exceeded it."""
    largest = np.float32(task.bound / 2.0**task.fraction_bits)
    if float(largest) * 2.0**task.fraction_bits > task.bound:  # float32 rounded the bound up
        largest = np.nextafter(largest, np.float32(0))
    if values.size == 0 or (-largest <= values.min() and values.max() <= largest):
        return values, False
    return np.clip(values, -largest, largest), True


def _check(model: Model, rows: Floats, dense: Floats, ratings: Ratings, epochs: int) -> None:
    if rows.shape != (ratings.items.size, model.row_width) or ratings.values.shape != ratings.items.shape:
        raise PartError("training needs one row and one value for each rated item")
    if dense.shape != (model.dense_size,):
        raise PartError("the dense part does not match the model's size; open the device with the task's model")
    if epochs < 1:
        raise ModelError("training needs at least one epoch")


def fit_private(model: Model, state: PrivateState, rows: Floats, dense: Floats, ratings: Ratings) -> PrivateState:
    """Return the state with a private part fitted to these rows, or following these events, if the model can do so."""
    if ratings.items.size == 0:
        return state
    with np.errstate(all="ignore"):
        values = _find_private(model, state.values, rows, dense, ratings)
    if not np.isfinite(values).all():
        raise NotFiniteLossError(_NOT_FINITE)
    return replace(state, values=values, steps=state.steps + 1)


def _find_private(model: Model, private: Floats, rows: Floats, dense: Floats, ratings: Ratings) -> Floats:
    if follows(model):
        return model.follow(rows, dense, private, ratings)
    return model.fit_private(rows, dense, private, ratings) if is_solved(model) else private


def move_private(
    model: Model, state: PrivateState, rows: Floats, dense: Floats, ratings: Ratings, *, rate: float
) -> PrivateState:
    """Return the private state after a round whose update is already computed: solved, or after one step of Adam."""
    if is_solved(model):
        return fit_private(model, state, rows, dense, ratings)
    return _learn_once(model, state, rows, dense, ratings, rate)[2]


def _learn_solved(
    model: SolvedModel, state: PrivateState, rows: Floats, dense: Floats, ratings: Ratings
) -> tuple[Floats, Floats, PrivateState]:
    state = fit_private(model, state, rows, dense, ratings)
    with np.errstate(all="ignore"):  # an overflow is refused below
        found = model.gradients(rows, dense, state.values, ratings)
    if not all(np.isfinite(part).all() for part in (found.loss, found.rows, found.dense)):
        raise NotFiniteLossError(_NOT_FINITE)
    return found.rows, found.dense, state


def _learn_once(
    model: Model, state: PrivateState, rows: Floats, dense: Floats, ratings: Ratings, rate: float
) -> tuple[Floats, Floats, PrivateState]:
    with np.errstate(all="ignore"):  # an overflow is refused below
        found = model.gradients(rows, dense, state.values, ratings)
        state = state.step(found.private, rate=rate)
    parts = (found.loss, found.rows, found.dense, state.values, state.second)
    if not all(np.isfinite(part).all() for part in parts):
        raise NotFiniteLossError(_NOT_FINITE)
    return found.rows, found.dense, state
