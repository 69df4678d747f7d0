"""Limits on the sums of a round that honest devices never exceed, whatever their data.

A sum that exceeds them contains something that no honest device sends. It does not show which session this came from,
so the whole round is discarded. docs/threat-model.md explains what a device can still do within the limits.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secemb_server0.gradient import Sum, Table
from secemb_server0.optimiser import LARGEST_NORM
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal, signed_decimal
from secemb_shared.messages.measures import EventSums, most_held_out
from secemb_shared.messages.privacy import USER
from secemb_shared.messages.spec import SQUARED, SURVEY, SURVEY_CAPACITIES
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

IMPOSSIBLE = "its sum is impossible"
SURVEY_NAMES = ("items", "above", "below", "squares", *(f"kept_{capacity}" for capacity in SURVEY_CAPACITIES))
_BLOCK = 1 << 13  # numbers: this many stay in cache, and BLAS multiplies them in the calling thread
_SPAN = 1 << 20  # numbers: read together
# Devices round to steps of 2^-16 and compute in float32, so exact limits hold only up to this.
_STEPS = 2.0**-15  # per session
_PART = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSize:
    """How large one part of a training round's sum is."""

    part: str  # rows or dense
    norm: float  # Euclidean, of the mean over the sessions
    fullness: float  # the largest element, as a fraction of the largest possible

    @property
    def impossible(self) -> bool:
        """Return whether an element, or all of them together, is larger than honest devices could have produced."""
        return self.fullness > 1 or self.norm > LARGEST_NORM


def measure_update(spec: RoundSpec, total: Sum, sessions: int) -> list[PartSize]:
    """Return how large the parts of a training round's sum are."""
    task, privacy = spec.task, spec.task.privacy
    parts = [("rows", total.rows, privacy.rows.tail if privacy else 0)]
    parts += [("dense", total.dense, privacy.dense.tail if privacy else 0)] if task.dense_size else []
    found = []
    for part, values, tail in parts:
        norm, largest = _measure(values, task)
        most = sessions * largest_element(task, part) + tail
        found.append(PartSize(part=part, norm=norm / sessions, fullness=largest / most))
    return found


def largest_element(task: TaskSpec, part: str) -> int:
    """Return the largest element of an honest device's update, in steps of the ring."""
    if task.privacy is None:
        return task.bound
    clip = (task.privacy.dense_clip if part == "dense" else 0) or task.privacy.train.clip
    # No element is longer than the whole vector; there may be as many records as the device has items.
    return min(task.bound, clip if task.privacy.unit == USER else clip * task.capacity)


def find_impossible(spec: RoundSpec, sums: Sequence[float], sessions: int) -> str | None:
    """Return which limit the numbers of a survey or an evaluation break, or None."""
    names = SURVEY_NAMES if spec.kind == SURVEY else spec.task.measured.names()
    found = dict(zip(names, sums, strict=True))
    noise = None if spec.task.privacy is None else spec.task.privacy.sums(spec.kind)
    slack = sessions * _STEPS + (0.0 if noise is None else noise.tail / 2.0**SUM_RING.fraction_bits)
    for name, value in found.items():
        if not -slack <= value <= sessions * SUM_BOUND / 2.0**SUM_RING.fraction_bits + slack:
            return f"{name} is negative or too large"
    evaluation_limits = _event_limits if spec.task.measured is EventSums else _evaluation_limits
    limits_of = _survey_limits if spec.kind == SURVEY else evaluation_limits
    for name, factor, of, most in limits_of(spec.task, found, sessions):
        # There is noise on both sides of a limit: the smaller side may be too large, the other too small.
        if found[name] > most * (1 + _PART) + slack * (1 + factor):
            return f"{name} is above {of}"
    return None


Limit = tuple[str, float, str, float]  # the name of a sum, a factor, its base, and their product: the limit of the sum


def _evaluation_limits(task: TaskSpec, found: Mapping[str, float], sessions: int) -> Iterator[Limit]:
    held, ends = most_held_out(task.capacity), _Ends.of(task)
    predictions = found["predictions"]
    rated = task.loss == SQUARED
    yield "predictions", 0.0, "what all sessions can predict", float(sessions * held * rated)
    for name, factor in (
        ("squared", ends.width**2),
        ("absolute", ends.width),
        ("above", ends.above),
        ("below", ends.below),
        ("spread", ends.farthest**2),
        ("biases", ends.width**2),
        ("predictions_2", held / task.capacity),
    ):
        if math.isfinite(factor):
            yield name, factor, "what these predictions allow", factor * predictions
    share = held / task.capacity
    yield "both", share, "what these errors allow", share * found["squared"]
    if math.isfinite(ends.width):
        factor = share * ends.width**2
        yield "squared_2", factor, "what these errors allow", factor * found["squared"]
    yield from _ranking_limits(found, sessions, ("hits", "recall", "ndcg", "reciprocal"))


def _event_limits(task: TaskSpec, found: Mapping[str, float], sessions: int) -> Iterator[Limit]:
    names = "hits", "recall", "ndcg", "reciprocal", "whole_hits", "whole_ndcg", "whole_reciprocal"
    yield from _ranking_limits(found, sessions, names)


def _ranking_limits(found: Mapping[str, float], sessions: int, names: Sequence[str]) -> Iterator[Limit]:
    rankings = found["rankings"]
    yield "rankings", 0.0, "one per session", float(sessions)
    for name in names:
        yield name, 1.0, "one per ranking", rankings
        yield f"popular_{name}", 1.0, "one per ranking", rankings
        if f"{name}_2" in found:
            yield f"{name}_2", 1.0, "its square root", found[name]


def _survey_limits(task: TaskSpec, found: Mapping[str, float], sessions: int) -> Iterator[Limit]:
    items, ends = found["items"], _Ends.of(task)
    yield "items", 0.0, "what all sessions allow", float(sessions * task.items)
    for name, factor in (("above", ends.above), ("below", ends.below), ("squares", ends.farthest**2)):
        if math.isfinite(factor):
            yield name, factor, "what these items allow", factor * items
    kept = [found[f"kept_{capacity}"] for capacity in SURVEY_CAPACITIES]
    yield f"kept_{SURVEY_CAPACITIES[-1]}", 1.0, "all items", items
    for capacity, less, more in zip(SURVEY_CAPACITIES, kept, [*kept[1:], None], strict=True):
        yield f"kept_{capacity}", 0.0, "this capacity times all sessions", float(sessions * capacity)
        if more is not None:
            # min(n, c) ≤ min(n, 2c) ≤ 2 · min(n, c) for every device.
            yield f"kept_{capacity}", 1.0, "what twice the capacity keeps", more
            yield f"kept_{2 * capacity}", 2.0, "twice what half of it keeps", 2 * less
    factor = max(1.0, task.items / SURVEY_CAPACITIES[-1])
    yield "items", factor, "what the surveyed devices allow", factor * kept[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The range of ratings as models see them; infinite if the task does not specify it."""

    above: float = math.inf
    below: float = math.inf

    @classmethod
    def of(cls, task: TaskSpec) -> "_Ends":
        if task.loss != SQUARED:
            return cls()
        centre, spread = signed_decimal(task.centre), decimal(task.spread)
        return cls(
            above=max(0.0, (signed_decimal(task.highest) - centre) / spread) if task.highest else math.inf,
            below=max(0.0, (centre - signed_decimal(task.lowest)) / spread) if task.lowest else math.inf,
        )

    @property
    def width(self) -> float:
        return self.above + self.below

    @property
    def farthest(self) -> float:
        return max(self.above, self.below)


def _measure(values: Table, task: TaskSpec) -> tuple[float, int]:
    """Return the Euclidean norm, and the largest absolute element in steps of the ring."""
    span, total, largest = max(1, _SPAN // math.prod(values.shape[1:])), 0.0, 0
    for start in range(0, values.shape[0], span):
        signed = task.ring.signed(values[start : start + span]).reshape(-1)
        largest = max(largest, int(signed.max()), -int(signed.min()))
        for first in range(0, signed.size, _BLOCK):
            block = signed[first : first + _BLOCK].astype(np.float64)
            total += float(np.dot(block, block))
    return math.sqrt(total) / 2.0**task.fraction_bits, largest
