"""Adam and SGD over the whole model as in torch.optim, with one rate for the rows and one for the dense part.

A step takes the mean gradient of a round and returns the next version of the model; the old one stays as it is. Only
single operations of float32 are used, each rounded as IEEE 754 says: a step that is repeated gives the same bits.

OptimiserError (a SecEmbError)
├── GradientError          a mean gradient that is not finite or not of the model's shape
└── StateError             a state of another optimiser, task or version, or none after a step was cut short
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from secemb_party.errors import GradientError, OptimiserError, StateError
from secemb_party.storage import Floats, Model, OptimiserState
from secemb_shared.dpf import RingArray
from secemb_shared.ring import Ring

Doubles = npt.NDArray[np.float64]

_BLOCK = 1 << 14  # numbers worked on together: 64 kB an array, so that what lies between two operations stays in cache
_UNTHREADED = 1 << 13  # numbers of a product that BLAS computes in the calling thread
_LARGEST_RATE = 1e6
_SMALLEST_EPS = 1e-12
_LARGEST_NORM = 2.0**63  # no ring holds more, and its square still fits float32
# Moments of rows that nobody touches decay for ever. Arithmetic on the subnormal numbers they reach is six times
# slower, and far below what can move a weight, so that they are set to zero from time to time.
_SWEEP = 64  # steps
_TINY_FIRST, _TINY_SECOND = np.float32(1e-30), np.float32(1e-36)
_PARTS = ("rows", "dense")
_MOMENTS = ("first", "second")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False, eq=False)
class Gradient:
    """The mean over a round's sessions of their updates."""

    rows: Doubles  # (items, width)
    dense: Doubles  # (dense size,)

    @classmethod
    def mean(cls, ring: Ring, *, rows: RingArray, dense: RingArray, sessions: int) -> Self:
        """Return the mean for sums in the ring."""
        if sessions < 1:
            raise GradientError("a mean needs at least one session")
        row_means, dense_means = ring.decode(rows), ring.decode(dense)
        row_means /= sessions
        dense_means /= sessions
        return cls(rows=row_means, dense=dense_means)


class Optimiser(ABC):
    """Moves a model by the mean gradient of a round."""

    kind: ClassVar[str]

    def __init__(self, *, row_rate: float, dense_rate: float) -> None:
        if not (0 <= row_rate <= _LARGEST_RATE and 0 <= dense_rate <= _LARGEST_RATE):
            raise OptimiserError("a rate must be a number from 0 to 1,000,000")
        self._row_rate, self._dense_rate = row_rate, dense_rate
        self._steps = 0
        self._reached: tuple[bytes, int] | None = None  # task and version that the last step led to
        self._whole = True  # false while a step is under way

    def step(self, model: Model, gradient: Gradient) -> Model:
        """Return the next version of the model. What is refused is refused before anything changes."""
        self._check(model, gradient)
        self._whole = False
        rows = self._move("rows", model.rows, gradient.rows, self._row_rate)
        dense = self._move("dense", model.dense, gradient.dense, self._dense_rate)
        moved = replace(model, version=model.version + 1, rows=rows, dense=dense)
        self._steps += 1
        self._reached = moved.task_id, moved.version
        self._whole = True
        return moved

    def state(self) -> OptimiserState:
        """Return a copy of what must be kept for a restart."""
        if self._reached is None or not self._whole:
            raise StateError("there is no state before the first step or after one that was cut short")
        task_id, version = self._reached
        tensors = {name: values.copy() for name, values in self._tensors().items()}
        return OptimiserState(task_id=task_id, version=version, kind=self.kind, steps=self._steps, tensors=tensors)

    def restore(self, state: OptimiserState) -> None:
        """Go on from a state that was saved."""
        if state.kind != self.kind:
            raise StateError(f"this state is of the optimiser {state.kind!r}, the task uses {self.kind!r}")
        if state.steps < 1:
            raise StateError("a state is what at least one step has left")
        self._take({name: values.copy() for name, values in state.tensors.items()})
        self._steps, self._reached, self._whole = state.steps, (state.task_id, state.version), True

    def _check(self, model: Model, gradient: Gradient) -> None:
        if not self._whole:
            raise StateError("the last step was cut short; restore the state that was saved and repeat the step")
        if self._reached not in (None, (model.task_id, model.version)):
            raise StateError("the optimiser has not led to this model; restore the state of the same task and version")
        for values, slope in ((model.rows, gradient.rows), (model.dense, gradient.dense)):
            if slope.shape != values.shape or slope.dtype != np.float64:
                raise GradientError("a mean gradient must be float64 and have the shape of the model")
            if not _square(slope.reshape(-1)) <= _LARGEST_NORM**2:
                raise GradientError("a mean gradient must be finite; abort the round and look at the task's clip")

    @abstractmethod
    def _move(self, part: str, values: Floats, slope: Doubles, rate: float) -> Floats:
        """Return the moved numbers of one part of the model."""

    @abstractmethod
    def _tensors(self) -> Mapping[str, Floats]:
        """Return what is remembered, by name."""

    @abstractmethod
    def _take(self, tensors: dict[str, Floats]) -> None:
        """Remember this from now on, or refuse it."""


class Sgd(Optimiser):
    """Plain gradient descent: w ← w − rate · g."""

    kind = "sgd"

    def _move(self, part: str, values: Floats, slope: Doubles, rate: float) -> Floats:
        moved = np.empty_like(values)
        old, new, slopes = values.reshape(-1), moved.reshape(-1), slope.reshape(-1)
        scratch = np.empty(min(_BLOCK, old.size), dtype=np.float32)
        for block in _blocks(old.size):
            g = scratch[: old[block].size]
            np.copyto(g, slopes[block], casting="same_kind")
            np.multiply(g, np.float32(rate), out=g)
            np.subtract(old[block], g, out=new[block])
        return moved

    def _tensors(self) -> Mapping[str, Floats]:
        return {}

    def _take(self, tensors: dict[str, Floats]) -> None:
        if tensors:
            raise StateError("plain gradient descent remembers nothing but its steps")


class Adam(Optimiser):
    """Adam as torch.optim has it, dense: numbers without a gradient still move by their momentum."""

    kind = "adam"

    def __init__(
        self, *, row_rate: float, dense_rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(row_rate=row_rate, dense_rate=dense_rate)
        if not (0 <= betas[0] < 1 and 0 <= betas[1] < 1 and _SMALLEST_EPS <= eps <= 1):
            raise OptimiserError(f"betas must be numbers from 0 to below 1, eps from {_SMALLEST_EPS} to 1")
        self._betas, self._eps = betas, eps
        self._moments: dict[str, Floats] = {}

    def _check(self, model: Model, gradient: Gradient) -> None:
        super()._check(model, gradient)
        if not self._moments:
            parts = zip(_PARTS, (model.rows, model.dense), strict=True)
            self._moments = {f"{part}_{moment}": np.zeros_like(w) for part, w in parts for moment in _MOMENTS}
        shapes = tuple(self._moments[f"{part}_first"].shape for part in _PARTS)
        if shapes != (model.rows.shape, model.dense.shape):
            raise StateError("the restored state is of a model with another shape")

    def _move(self, part: str, values: Floats, slope: Doubles, rate: float) -> Floats:
        moved = np.empty_like(values)
        first, second = (self._moments[f"{part}_{moment}"].reshape(-1) for moment in _MOMENTS)
        old, new, slopes = values.reshape(-1), moved.reshape(-1), slope.reshape(-1)
        scratch = np.empty((2, min(_BLOCK, old.size)), dtype=np.float32)
        steps = self._steps + 1
        # rate/c₁ · m / (√v/√c₂ + eps), with √c₂ taken out of the denominator: one operation less for each number
        c1, root_c2 = 1 - self._betas[0] ** steps, float(np.sqrt(1 - self._betas[1] ** steps))
        factor, eps = np.float32(rate * root_c2 / c1), np.float32(self._eps * root_c2)
        for block in _blocks(old.size):
            m, v = first[block], second[block]
            g, quotient = scratch[:, : m.size]
            np.copyto(g, slopes[block], casting="same_kind")
            self._blend(m, v, g, quotient)
            if steps % _SWEEP == 0:
                m[np.abs(m) < _TINY_FIRST] = 0
                v[v < _TINY_SECOND] = 0
            np.sqrt(v, out=quotient)
            np.add(quotient, eps, out=quotient)
            np.divide(m, quotient, out=quotient)
            np.multiply(quotient, factor, out=quotient)
            np.subtract(old[block], quotient, out=new[block])
        return moved

    def _blend(self, m: Floats, v: Floats, g: Floats, scratch: Floats) -> None:
        """Let m ← m + (1−β₁)(g − m) and v ← β₂v + (1−β₂)g², in place; g is used up."""
        np.subtract(g, m, out=scratch)
        np.multiply(scratch, np.float32(1 - self._betas[0]), out=scratch)
        np.add(m, scratch, out=m)
        np.multiply(g, g, out=g)
        np.multiply(g, np.float32(1 - self._betas[1]), out=g)
        np.multiply(v, np.float32(self._betas[1]), out=v)
        np.add(v, g, out=v)

    def _tensors(self) -> Mapping[str, Floats]:
        return self._moments

    def _take(self, tensors: dict[str, Floats]) -> None:
        if set(tensors) != {f"{part}_{moment}" for part in _PARTS for moment in _MOMENTS}:
            raise StateError("the state of Adam is a first and a second moment for rows and dense part")
        for part in _PARTS:
            first, second = tensors[f"{part}_first"], tensors[f"{part}_second"]
            if first.shape != second.shape or first.dtype != np.float32 or second.dtype != np.float32:
                raise StateError("the moments of a state must be float32 and of one shape")
            if not (np.isfinite(first).all() and np.isfinite(second).all() and (second >= 0).all()):
                raise StateError("the moments of a state must be finite, and the second ones not negative")
        self._moments = tensors


def _square(values: Doubles) -> float:
    """Return the squared norm in one pass: NaN, infinity and anything too large for float32 show in it."""
    # BLAS would give a long product to threads of its own, which then burn processor time waiting for the next one.
    with np.errstate(all="ignore"):
        return float(sum(np.dot(values[block], values[block]) for block in _blocks(values.size, _UNTHREADED)))


def _blocks(size: int, length: int = _BLOCK) -> Iterator[slice]:
    return (slice(first, first + length) for first in range(0, size, length))
