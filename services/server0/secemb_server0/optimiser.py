"""The optimiser: it moves a model by the mean gradient of a round, with rates for vectors, biases and the dense part.

A step takes the mean gradient of a round and returns the next version of the model; the old one stays as it is. It uses
only single float32 operations, each rounded according to IEEE 754, so a repeated step gives the same bits. If devices
read rows in half precision, the optimiser keeps the rows that it moves in its state, and publishes them rounded.

OptimiserError (a SecEmbError)
├── GradientError          a mean gradient that is not finite or not of the model's shape
└── StateError             a state of another optimiser, task or version, or none because a step was interrupted
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, Self

import numpy as np

from secemb_party.errors import GradientError, OptimiserError, StateError
from secemb_party.storage import Floats, Model, ModelStep, OptimiserState
from secemb_party.storage.mapped_arrays import release
from secemb_server0.gradient import Doubles, Gradient, Table
from secemb_server0.guard import Guard, row_lengths, whole_length
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.row_words import HALF, SINGLE, published

Advance = tuple[str, slice, Floats, dict[str, Floats]]  # part, span of its rows, their new numbers, their state

_BLOCK = 1 << 14  # numbers processed together: 64 kB per array, so that intermediate results stay in cache
_SPAN = 1 << 20  # numbers read and written together
_LARGEST_RATE = 1e6
EXACT = "rows_exact"  # the name of full-precision rows in a state
INHERITED = "inherited"  # the tensor with the number of steps in earlier tasks, which moments have, but not the rates
_MOST_INHERITED = 2**24  # a float32 holds it exactly, and more would make no difference
LARGEST_NORM = 2.0**63  # no ring holds more, and its square still fits in a float32


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

    def __init__(self, rates: Rates, *, guard: Guard | None = None, row_bits: int = SINGLE) -> None:
        self._rates, self.guard, self._row_bits = rates, guard, row_bits
        self._exact: Floats | None = None  # the rows before they were rounded; None: start from the published ones
        self._steps = 0
        self._inherited = 0  # steps of the task's predecessors
        self._reached: tuple[bytes, int] | None = None  # task and version after the last step
        self._whole = True  # false during a step

    def step(self, model: Model, gradient: Gradient) -> Model:
        """Return the next version of the model. Errors are raised before anything changes."""
        rows, dense = np.empty_like(model.rows), np.empty_like(model.dense)
        exact = np.empty_like(rows) if self._row_bits == HALF else None
        for part, span, values, state in self._advance(model, gradient, in_place=True):
            (rows if part == "rows" else dense)[span] = values
            if exact is not None and part == "rows":
                exact[span] = state[EXACT]
        self._exact = exact
        return self._conclude(replace(model, version=model.version + 1, rows=rows, dense=dense))

    def step_in_blocks(self, model: Model, gradient: Gradient) -> ModelStep:
        """Return the next version and the state after it as blocks. This optimiser is not used again.

        The blocks have the same bits as what `step` and `state` return.
        """
        begun = self._advance(model, gradient, in_place=False)
        first = next(begun)  # from here on, the shapes of the state are known
        small = {**(self.guard.tensors() if self.guard is not None else {}), **self._inheritance()}
        kept = {**self._tensors(), **small}
        if self._row_bits == HALF:
            kept[EXACT] = model.rows  # of the same shape

        def each() -> Iterator[dict[str, Floats]]:
            yield small
            for part, _, values, state in chain([first], begun):
                yield {part: values, **state}

        return ModelStep(
            task_id=model.task_id,
            version=model.version + 1,
            kind=self.kind,
            steps=self._steps + 1,
            state={name: values.shape for name, values in kept.items()},
            blocks=each(),
        )

    def _advance(self, model: Model, gradient: Gradient, *, in_place: bool) -> Iterator[Advance]:
        """Yield the spans of the model after the step, and the state of these spans, each in its order.

        The state is changed in place, or copied span by span.
        """
        lengths = self._check(model, gradient)
        self._whole = False
        factors: dict[str, Floats | None] = {}
        if self.guard is not None:
            factors["rows"] = self.guard.factors("rows", lengths)
            if gradient.dense.size:
                factors["dense"] = self.guard.factors("dense", whole_length(gradient.dense))
        rows, dense = self._row_step(model.rows.shape[1]), self._dense_step(factors.get("dense"))
        size = max(1, _SPAN // model.rows.shape[1])
        for span in blocks(len(model.rows), size):
            found = factors.get("rows")
            limited = replace(rows, factors=found[span] if found is not None else None)
            values = model.rows if self._exact is None else self._exact
            yield self._advance_span("rows", span, values, gradient.rows, limited, in_place=in_place)
        for span in blocks(model.dense.size, _SPAN):
            yield self._advance_span("dense", span, model.dense, gradient.dense, dense, in_place=in_place)

    def _advance_span(
        self, part: str, span: slice, values: Floats, slopes: Table, step: BlockStep, *, in_place: bool
    ) -> Advance:
        prefix = f"{part}_"
        state = {name: one[span] for name, one in self._tensors().items() if name.startswith(prefix)}
        if not in_place:
            state = {name: one.copy() for name, one in state.items()}
        moments = {name.removeprefix(prefix): one for name, one in state.items()}
        moved = self._move(part, values[span], slopes[span], moments, step)
        for used in (values, *(self._tensors()[name] for name in state)):
            release(used[span])
        if part == "rows" and self._row_bits == HALF:
            state[EXACT], moved = moved, published(moved, HALF)
        return part, span, moved, state

    def _conclude(self, moved: Model) -> Model:
        self._steps += 1
        self._reached = moved.task_id, moved.version
        self._whole = True
        return moved

    def _row_step(self, width: int) -> BlockStep:
        rates, share, count = self._rates, self._rates.share(self._steps), max(1, _BLOCK // width)

        def each(vector: float, bias: float) -> Floats:
            return np.tile(np.array([vector] * (width - 1) + [bias], dtype=np.float32), count)

        decays = each(rates.row_decay, rates.bias_decay) if rates.row_decay or rates.bias_decay else None
        return BlockStep(each(rates.rows * share, rates.bias_rate * share), decays, None, width)

    def _dense_step(self, factors: Floats | None) -> BlockStep:
        rate = np.full(_BLOCK, self._rates.dense * self._rates.share(self._steps), dtype=np.float32)
        return BlockStep(rate, None, factors)

    def state(self) -> OptimiserState:
        """Return a copy of the state needed after a restart."""
        if self._reached is None or not self._whole:
            raise StateError("there is no state before the first step or after an interrupted one")
        task_id, version = self._reached
        kept = {**self._tensors(), **(self.guard.tensors() if self.guard is not None else {})}
        if self._exact is not None:
            kept[EXACT] = self._exact
        tensors = {name: values.copy() for name, values in kept.items()}
        tensors |= self._inheritance()
        return OptimiserState(task_id=task_id, version=version, kind=self.kind, steps=self._steps, tensors=tensors)

    def _inheritance(self) -> dict[str, Floats]:
        return {INHERITED: np.array([self._inherited], dtype=np.float32)} if self._inherited else {}

    def restore(self, state: OptimiserState, *, copy: bool = True) -> None:
        """Continue from a saved state; without a copy of it, only `step_in_blocks` may follow."""
        if state.kind != self.kind:
            raise StateError(f"this state is for the optimiser {state.kind!r}, but the task uses {self.kind!r}")
        self._inherited = 0
        if state.steps or state.tensors:  # otherwise of no optimiser: start fresh at this version
            tensors = {name: values.copy() if copy else values for name, values in state.tensors.items()}
            if INHERITED in tensors:
                self._inherited = _read_count(tensors.pop(INHERITED))
            self._exact = self._take_exact(tensors)
            if self.guard is not None:
                self.guard.take(tensors)
            self._take(tensors)
        self._steps, self._reached, self._whole = state.steps, (state.task_id, state.version), True

    def _take_exact(self, tensors: dict[str, Floats]) -> Floats | None:
        exact = tensors.pop(EXACT, None)
        if exact is not None and self._row_bits != HALF:
            raise StateError("the state is for a task whose devices read rounded rows")
        return exact

    def _check(self, model: Model, gradient: Gradient) -> Doubles:
        """Refuse what does not fit; return the lengths of the gradient's rows."""
        if not self._whole:
            raise StateError("the last step was interrupted; restore the saved state and repeat the step")
        if self._reached not in (None, (model.task_id, model.version)):
            raise StateError("the state does not belong to this model; restore the state for the same task and version")
        if self.guard is not None:
            self.guard.check(len(model.rows), model.dense.size)
        if self._exact is not None and not _is_published(self._exact, model.rows):
            raise StateError("the restored state is for a model with other rows")
        for values, slope in ((model.rows, gradient.rows), (model.dense, gradient.dense)):
            if slope.shape != values.shape or slope.dtype != np.float64:
                raise GradientError("a mean gradient must be float64 and have the shape of the model")
        with np.errstate(all="ignore"):  # NaN, infinity and anything too large for float32 show in the lengths
            lengths = row_lengths(gradient.rows)
            for found in (lengths, whole_length(gradient.dense)):
                if not float(np.square(found).sum()) <= LARGEST_NORM**2:
                    raise GradientError("a mean gradient must be finite; abort the round and check the task's clip")
        return lengths

    @abstractmethod
    def _move(
        self, part: str, values: Floats, slopes: Doubles, moments: Mapping[str, Floats], step: BlockStep
    ) -> Floats:
        """Return the updated numbers of a span of one part of the model, and update its moments in place."""

    @abstractmethod
    def _tensors(self) -> Mapping[str, Floats]:
        """Return the state by name."""

    @abstractmethod
    def _take(self, tensors: dict[str, Floats]) -> None:
        """Restore this state, or refuse it."""


def _is_published(exact: Floats, rows: Floats) -> bool:
    """Return whether these are the rounded rows."""
    return exact.shape == rows.shape and all(
        np.array_equal(published(exact[span], HALF), rows[span]) for span in blocks(len(rows), _BLOCK)
    )


def inherited_steps(state: OptimiserState) -> Floats:
    """Return the tensor with the number of all steps up to this state, for the state of a successor."""
    before = _read_count(state.tensors[INHERITED]) if INHERITED in state.tensors else 0
    return np.array([min(before + state.steps, _MOST_INHERITED)], dtype=np.float32)


def _read_count(tensor: Floats) -> int:
    if tensor.shape != (1,) or not 0 <= tensor[0] <= _MOST_INHERITED or tensor[0] % 1:
        raise StateError("the number of inherited steps in a state must be a whole number")
    return int(tensor[0])


def blocks(size: int, length: int) -> Iterator[slice]:
    """Yield slices of this many numbers."""
    return (slice(first, first + length) for first in range(0, size, length))
