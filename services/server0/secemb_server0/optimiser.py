"""The optimiser: it moves a model by the mean gradient of a round, with rates for vectors, biases and the dense part.

A step takes the mean gradient of a round and returns the next version of the model; the old one stays as it is. It uses
only single float32 operations, each rounded according to IEEE 754, so a repeated step gives the same bits.

OptimiserError (a SecEmbError)
├── GradientError          a mean gradient that is not finite or not of the model's shape
└── StateError             a state of another optimiser, task or version, or none because a step was interrupted
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from secemb_party.errors import GradientError, OptimiserError, StateError
from secemb_party.storage import Floats, Model, OptimiserState
from secemb_server0.guard import Guard, row_lengths, whole_length
from secemb_shared.dpf import RingArray
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.ring import Ring

Doubles = npt.NDArray[np.float64]

_BLOCK = 1 << 14  # numbers processed together: 64 kB per array, so that intermediate results stay in cache
_UNTHREADED = 1 << 13  # length of a product that BLAS computes in the calling thread
_LARGEST_RATE = 1e6
INHERITED = "inherited"  # the tensor with the number of steps in earlier tasks, which moments have, but not the rates
_MOST_INHERITED = 2**24  # a float32 holds it exactly, and more would make no difference
LARGEST_NORM = 2.0**63  # no ring holds more, and its square still fits in a float32


@dataclass(frozen=True, kw_only=True, slots=True, repr=False, eq=False)
class Gradient:
    """The mean of the updates of a round's sessions."""

    rows: Doubles  # (items, width)
    dense: Doubles  # (dense size,)

    @classmethod
    def mean(cls, ring: Ring, *, rows: RingArray, dense: RingArray, sessions: int) -> Self:
        """Return the mean for sums in the ring."""
        if sessions < 1:
            raise GradientError("a mean requires at least one session")
        row_means, dense_means = ring.decode(rows), ring.decode(dense)
        row_means /= sessions
        dense_means /= sessions
        return cls(rows=row_means, dense=dense_means)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """The rates of a model's parts. The last number of a row is the bias of its item, the others are its vector."""

    rows: float
    dense: float
    biases: float | None = None  # None: as fast as the vectors
    row_decay: float = 0.0  # this times a vector is added to its gradient
    bias_decay: float = 0.0  # the same for a bias
    rounds: int | None = None  # number of steps over which all rates decay to zero along a cosine; None: constant rates

    def __post_init__(self) -> None:
        numbers = (self.rows, self.dense, self.bias_rate, self.row_decay, self.bias_decay)
        if not all(0 <= number <= _LARGEST_RATE for number in numbers):
            raise OptimiserError("a learning rate must be a number from 0 to 1,000,000")

    @classmethod
    def of(cls, task: TaskSpec) -> Self:
        """Return the rates of a task."""
        return cls(
            rows=decimal(task.row_rate),
            dense=decimal(task.dense_rate),
            biases=decimal(task.bias_rate),
            row_decay=decimal(task.row_decay),
            bias_decay=decimal(task.bias_decay),
            rounds=task.rounds if task.schedule == "cosine" else None,
        )

    @property
    def bias_rate(self) -> float:
        """Return the rate of the biases."""
        return self.rows if self.biases is None else self.biases

    def share(self, steps: int) -> float:
        """Return the remaining fraction of the rates after this many steps."""
        if self.rounds is None:
            return 1.0
        return (1 + math.cos(math.pi * min(steps / self.rounds, 1.0))) / 2


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BlockStep:
    """The data for a step on a block of whole rows; a block of the dense part is a single row without a bias."""

    rates: Floats  # (block,)
    decays: Floats | None  # (block,), or None without decay
    factors: Floats | None = None  # of the guard, one per row; a single one for the dense part; None: all are 1
    width: int = 1  # numbers per row

    def take(self, slopes: Doubles, block: slice, g: Floats) -> None:
        """Copy a block of a gradient, limited by the guard."""
        np.copyto(g, slopes[block], casting="same_kind")
        if self.factors is None:
            return
        if self.factors.size == 1:
            np.multiply(g, self.factors[0], out=g)
            return
        rows, first = g.reshape(-1, self.width), block.start // self.width
        np.multiply(rows, self.factors[first : first + len(rows), np.newaxis], out=rows)

    def add_decay(self, g: Floats, values: Floats, scratch: Floats) -> None:
        """Add the weight decay to a gradient, in place."""
        if self.decays is not None:
            np.multiply(values, self.decays[: g.size], out=scratch)
            np.add(g, scratch, out=g)


class Optimiser(ABC):
    """Moves a model by the mean gradient of a round."""

    kind: ClassVar[str]

    def __init__(self, rates: Rates, *, guard: Guard | None = None) -> None:
        self._rates, self.guard = rates, guard
        self._steps = 0
        self._inherited = 0  # steps of the task's predecessors
        self._reached: tuple[bytes, int] | None = None  # task and version after the last step
        self._whole = True  # false during a step

    def step(self, model: Model, gradient: Gradient) -> Model:
        """Return the next version of the model. Errors are raised before anything changes."""
        self._check(model, gradient)
        self._whole = False
        row_factors = dense_factors = None
        if self.guard is not None:
            row_factors = self.guard.factors("rows", row_lengths(gradient.rows))
            if gradient.dense.size:
                dense_factors = self.guard.factors("dense", whole_length(gradient.dense))
        rows = self._move("rows", model.rows, gradient.rows, self._row_step(model.rows.shape[1], row_factors))
        dense = self._move("dense", model.dense, gradient.dense, self._dense_step(dense_factors))
        moved = replace(model, version=model.version + 1, rows=rows, dense=dense)
        self._steps += 1
        self._reached = moved.task_id, moved.version
        self._whole = True
        return moved

    def _row_step(self, width: int, factors: Floats | None) -> BlockStep:
        rates, share, count = self._rates, self._rates.share(self._steps), max(1, _BLOCK // width)

        def each(vector: float, bias: float) -> Floats:
            return np.tile(np.array([vector] * (width - 1) + [bias], dtype=np.float32), count)

        decays = each(rates.row_decay, rates.bias_decay) if rates.row_decay or rates.bias_decay else None
        return BlockStep(each(rates.rows * share, rates.bias_rate * share), decays, factors, width)

    def _dense_step(self, factors: Floats | None) -> BlockStep:
        rate = np.full(_BLOCK, self._rates.dense * self._rates.share(self._steps), dtype=np.float32)
        return BlockStep(rate, None, factors)

    def state(self) -> OptimiserState:
        """Return a copy of the state needed after a restart."""
        if self._reached is None or not self._whole:
            raise StateError("there is no state before the first step or after an interrupted one")
        task_id, version = self._reached
        kept = {**self._tensors(), **(self.guard.tensors() if self.guard is not None else {})}
        tensors = {name: values.copy() for name, values in kept.items()}
        if self._inherited:
            tensors[INHERITED] = np.array([self._inherited], dtype=np.float32)
        return OptimiserState(task_id=task_id, version=version, kind=self.kind, steps=self._steps, tensors=tensors)

    def restore(self, state: OptimiserState) -> None:
        """Continue from a saved state."""
        if state.kind != self.kind:
            raise StateError(f"this state is for the optimiser {state.kind!r}, but the task uses {self.kind!r}")
        self._inherited = 0
        if state.steps or state.tensors:  # otherwise of no optimiser: start fresh at this version
            tensors = {name: values.copy() for name, values in state.tensors.items()}
            if INHERITED in tensors:
                self._inherited = _read_count(tensors.pop(INHERITED))
            if self.guard is not None:
                self.guard.take(tensors)
            self._take(tensors)
        self._steps, self._reached, self._whole = state.steps, (state.task_id, state.version), True

    def _check(self, model: Model, gradient: Gradient) -> None:
        if not self._whole:
            raise StateError("the last step was interrupted; restore the saved state and repeat the step")
        if self._reached not in (None, (model.task_id, model.version)):
            raise StateError("the state does not belong to this model; restore the state for the same task and version")
        if self.guard is not None:
            self.guard.check(len(model.rows), model.dense.size)
        for values, slope in ((model.rows, gradient.rows), (model.dense, gradient.dense)):
            if slope.shape != values.shape or slope.dtype != np.float64:
                raise GradientError("a mean gradient must be float64 and have the shape of the model")
            if not _square(slope.reshape(-1)) <= LARGEST_NORM**2:
                raise GradientError("a mean gradient must be finite; abort the round and check the task's clip")

    @abstractmethod
    def _move(self, part: str, values: Floats, slope: Doubles, step: BlockStep) -> Floats:
        """Return the updated numbers of one part of the model."""

    @abstractmethod
    def _tensors(self) -> Mapping[str, Floats]:
        """Return the state by name."""

    @abstractmethod
    def _take(self, tensors: dict[str, Floats]) -> None:
        """Restore this state, or refuse it."""


def inherited_steps(state: OptimiserState) -> Floats:
    """Return the tensor with the number of all steps up to this state, for the state of a successor."""
    before = _read_count(state.tensors[INHERITED]) if INHERITED in state.tensors else 0
    return np.array([min(before + state.steps, _MOST_INHERITED)], dtype=np.float32)


def _read_count(tensor: Floats) -> int:
    if tensor.shape != (1,) or not 0 <= tensor[0] <= _MOST_INHERITED or tensor[0] % 1:
        raise StateError("the number of inherited steps in a state must be a whole number")
    return int(tensor[0])


def _square(values: Doubles) -> float:
    """Return the squared norm in one pass: NaN, infinity and anything too large for float32 show in it."""
    # BLAS would pass a long product to its own threads, which then use CPU time while waiting for the next one.
    with np.errstate(all="ignore"):
        return float(sum(np.dot(values[block], values[block]) for block in blocks(values.size, _UNTHREADED)))


def blocks(size: int, length: int) -> Iterator[slice]:
    """Yield slices of this many numbers."""
    return (slice(first, first + length) for first in range(0, size, length))
