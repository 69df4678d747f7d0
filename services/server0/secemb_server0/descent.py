"""Adam, momentum and plain gradient descent over the whole model, as in torch.optim."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from secemb_party.errors import OptimiserError, StateError
from secemb_party.storage import Floats, Model
from secemb_party.storage.mapped_arrays import in_blocks
from secemb_server0.gradient import Doubles, Gradient
from secemb_server0.guard import Guard
from secemb_server0.optimiser import BlockStep, Optimiser, Rates, blocks
from secemb_shared.row_words import SINGLE

_SMALLEST_EPS = 1e-12
# Moments of rows without gradients decay until they are subnormal. Arithmetic on subnormal numbers is six times slower,
# and they are far too small to move a weight, so they are periodically set to zero.
_SWEEP = 64  # steps
_TINY_FIRST, _TINY_SECOND = np.float32(1e-30), np.float32(1e-36)
_PARTS = ("rows", "dense")
_MOMENTS = ("first", "second")


class Momentum(Optimiser):
    """Gradient descent with momentum, as in torch.optim.SGD: v ← β · v + g, w ← w − rate · v."""

    kind = "momentum"
    beta: ClassVar[float] = 0.9

    def __init__(self, rates: Rates, *, guard: Guard | None = None, row_bits: int = SINGLE) -> None:
        super().__init__(rates, guard=guard, row_bits=row_bits)
        self._moments: dict[str, Floats] = {}

    def _check(self, model: Model, gradient: Gradient) -> Doubles:
        lengths = super()._check(model, gradient)
        self._moments = _begun(self._moments, model, self._names)
        return lengths

    def _move(
        self, part: str, values: Floats, slopes: Doubles, moments: Mapping[str, Floats], step: BlockStep
    ) -> Floats:
        moved, first = np.empty_like(values), moments.get("first")
        old, new, slopes = values.reshape(-1), moved.reshape(-1), slopes.reshape(-1)
        scratch = np.empty((2, min(step.rates.size, old.size)), dtype=np.float32)
        for block in blocks(old.size, step.rates.size):
            g, other = scratch[:, : old[block].size]
            step.take(slopes, block, g)
            step.add_decay(g, old[block], other)
            if first is not None:
                m = first.reshape(-1)[block]
                np.multiply(m, np.float32(self.beta), out=m)
                np.add(m, g, out=m)
                np.copyto(g, m)
            np.multiply(g, step.rates[: g.size], out=g)
            np.subtract(old[block], g, out=new[block])
        return moved

    @property
    def _names(self) -> tuple[str, ...]:
        return ("first",)

    def _tensors(self) -> Mapping[str, Floats]:
        return self._moments

    def _take(self, tensors: dict[str, Floats]) -> None:
        _check_moments(tensors, self._names)
        self._moments = tensors


class Sgd(Momentum):
    """Plain gradient descent: w ← w − rate · g."""

    kind = "sgd"

    @property
    def _names(self) -> tuple[str, ...]:
        return ()


class Adam(Optimiser):
    """Adam as in torch.optim, dense: numbers without a gradient still move by their momentum."""

    kind = "adam"

    def __init__(
        self,
        rates: Rates,
        *,
        guard: Guard | None = None,
        row_bits: int = SINGLE,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(rates, guard=guard, row_bits=row_bits)
        if not (0 <= betas[0] < 1 and 0 <= betas[1] < 1 and _SMALLEST_EPS <= eps <= 1):
            raise OptimiserError(f"betas must be at least 0 and less than 1, and eps between {_SMALLEST_EPS} and 1")
        self._betas, self._eps = betas, eps
        self._moments: dict[str, Floats] = {}

    def _check(self, model: Model, gradient: Gradient) -> Doubles:
        lengths = super()._check(model, gradient)
        self._moments = _begun(self._moments, model, _MOMENTS)
        return lengths

    def _move(
        self, part: str, values: Floats, slopes: Doubles, moments: Mapping[str, Floats], step: BlockStep
    ) -> Floats:
        moved = np.empty_like(values)
        first, second = (moments[name].reshape(-1) for name in _MOMENTS)
        old, new, slopes = values.reshape(-1), moved.reshape(-1), slopes.reshape(-1)
        scratch = np.empty((2, min(step.rates.size, old.size)), dtype=np.float32)
        steps = self._inherited + self._steps + 1
        # rate/c₁ · m / (√v/√c₂ + eps), with √c₂ moved out of the denominator, which saves one operation per number
        c1, root_c2 = 1 - self._betas[0] ** steps, float(np.sqrt(1 - self._betas[1] ** steps))
        factors, eps = step.rates * np.float32(root_c2 / c1), np.float32(self._eps * root_c2)
        for block in blocks(old.size, step.rates.size):
            m, v = first[block], second[block]
            g, quotient = scratch[:, : m.size]
            step.take(slopes, block, g)
            step.add_decay(g, old[block], quotient)
            self._blend(m, v, g, quotient)
            if steps % _SWEEP == 0:
                m[np.abs(m) < _TINY_FIRST] = 0
                v[v < _TINY_SECOND] = 0
            np.sqrt(v, out=quotient)
            np.add(quotient, eps, out=quotient)
            np.divide(m, quotient, out=quotient)
            np.multiply(quotient, factors[: m.size], out=quotient)
            np.subtract(old[block], quotient, out=new[block])
        return moved

    def _blend(self, m: Floats, v: Floats, g: Floats, scratch: Floats) -> None:
        """Set m ← m + (1−β₁)(g − m) and v ← β₂v + (1−β₂)g², in place; g is overwritten."""
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
        _check_moments(tensors, _MOMENTS)
        if not all((one >= 0).all() for part in _PARTS for one in in_blocks(tensors[f"{part}_second"])):
            raise StateError("the second moments in a state must not be negative")
        self._moments = tensors


class LazyAdam(Adam):
    """Adam that leaves a row and its moments alone in steps in which no device has updated the row.

    The sum alone tells which rows these are. The dense part moves in every step.
    """

    kind = "lazy-adam"

    def _move(
        self, part: str, values: Floats, slopes: Doubles, moments: Mapping[str, Floats], step: BlockStep
    ) -> Floats:
        if part == "dense":
            return super()._move(part, values, slopes, moments, step)
        touched = np.flatnonzero(slopes.any(axis=1))
        moved = values.copy()
        if touched.size:
            some = {name: one[touched] for name, one in moments.items()}
            limited = step if step.factors is None else replace(step, factors=step.factors[touched])
            moved[touched] = super()._move(part, values[touched], slopes[touched], some, limited)
            for name, one in some.items():
                moments[name][touched] = one
        return moved


OPTIMISERS: dict[str, type[Optimiser]] = {one.kind: one for one in (Adam, LazyAdam, Momentum, Sgd)}


def _begun(moments: dict[str, Floats], model: Model, names: Sequence[str]) -> dict[str, Floats]:
    """Return the moments of a model, zeros before the first step."""
    parts = dict(zip(_PARTS, (model.rows, model.dense), strict=True))
    if not moments:
        return {
            f"{part}_{name}": np.zeros(values.shape, dtype=np.float32)
            for part, values in parts.items()
            for name in names
        }
    if any(moments[f"{part}_{name}"].shape != values.shape for part, values in parts.items() for name in names):
        raise StateError("the restored state is for a model with a different shape")
    return moments


def _check_moments(tensors: Mapping[str, Floats], names: Sequence[str]) -> None:
    if set(tensors) != {f"{part}_{name}" for part in _PARTS for name in names}:
        raise StateError("the state does not have the moments of this optimiser")
    for part in _PARTS:
        found = [tensors[f"{part}_{name}"] for name in names]
        if any(one.shape != found[0].shape or one.dtype != np.float32 for one in found):
            raise StateError("the moments in a state must be float32 and have the same shape")
        if not all(np.isfinite(block).all() for one in found for block in in_blocks(one)):
            raise StateError("the moments in a state must be finite")
