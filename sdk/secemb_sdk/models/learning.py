"""One round of learning on a device: what it uploads, and how its private part moves.

The device takes the gradient of its loss over all its ratings of the round. What belongs to rows and to the dense part
is uploaded, and server 0 steps by the mean over the round's devices. What belongs to the private part moves it at once,
by a step of Adam whose memory stays on the device too.

With several epochs the private part takes a step after each of them, while rows and dense part stay at the version
that the round reads. The upload is then the sum of the epochs' gradients: still a gradient at that one version, and so
what a mean over devices is made of.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_sdk.models.errors import ModelError, NotFiniteLossError, PartError
from secemb_sdk.models.interface import Floats, Model, Ratings
from secemb_shared.messages import TaskSpec

Numbers = npt.NDArray[np.floating]

BETAS, EPS = (0.9, 0.999), 1e-8  # as in torch.optim.Adam


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateState:
    """The private part of a model, and the memory of its optimiser: all that a device keeps from round to round."""

    values: Floats = field(repr=False)  # (private size,), as are the next two
    first: Floats = field(repr=False)  # Adam's mean gradient
    second: Floats = field(repr=False)  # Adam's mean squared gradient
    steps: int = 0

    @classmethod
    def begin(cls, model: Model, random: np.random.Generator) -> Self:
        """Return the state of a device that has not taken part yet."""
        values = model.first_private(random)
        return cls(values=values, first=np.zeros_like(values), second=np.zeros_like(values))

    def step(self, gradient: Floats, *, rate: float) -> "PrivateState":
        """Return the state after one step of Adam against the gradient."""
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
    """Return the updates to upload, one a row and one for the dense part, and the next private state.

    `rows[i]` is the row of `ratings.items[i]`; the updates of rows come in the same order. Raises `NotFiniteLossError`
    where there is nothing to learn from: the device then uploads zeros, because absence must not speak, and keeps the
    state it had.
    """
    _check(model, rows, dense, ratings, epochs)
    by_row, by_dense, state = _learn_once(model, state, rows, dense, ratings, rate)
    for _ in range(epochs - 1):
        more_by_row, more_by_dense, state = _learn_once(model, state, rows, dense, ratings, rate)
        by_row, by_dense = by_row + more_by_row, by_dense + more_by_dense
    return by_row, by_dense, state


def fit_bound(values: Numbers, task: TaskSpec) -> tuple[Numbers, bool]:
    """Return the numbers cut to what one device may add to one element of the sum, and whether any was beyond it."""
    largest = np.float32(task.bound / 2.0**task.fraction_bits)
    if float(largest) * 2.0**task.fraction_bits > task.bound:  # float32 rounded a long bound up
        largest = np.nextafter(largest, np.float32(0))
    if -largest <= values.min(initial=0) and values.max(initial=0) <= largest:
        return values, False
    return np.clip(values, -largest, largest), True


def _check(model: Model, rows: Floats, dense: Floats, ratings: Ratings, epochs: int) -> None:
    if rows.shape != (ratings.items.size, model.row_width) or ratings.values.shape != ratings.items.shape:
        raise PartError("learning needs one row and one value for each rated item")
    if dense.shape != (model.dense_size,):
        raise PartError("the dense part is not as long as the model says; is this the task's model?")
    if epochs < 1:
        raise ModelError("learning takes at least one epoch")


def _learn_once(
    model: Model, state: PrivateState, rows: Floats, dense: Floats, ratings: Ratings, rate: float
) -> tuple[Floats, Floats, PrivateState]:
    with np.errstate(all="ignore"):  # what overflows is refused in the next lines
        found = model.gradients(rows, dense, state.values, ratings)
        state = state.step(found.private, rate=rate)
    parts = (found.loss, found.rows, found.dense, state.values, state.second)
    if not all(np.isfinite(part).all() for part in parts):
        raise NotFiniteLossError("the loss or its gradient is not finite; upload zeros and check ratings and rates")
    return found.rows, found.dense, state
