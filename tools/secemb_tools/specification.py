"""The one builder of task specifications: `secemb task create`, plans, simulations and measurements all use it."""

import math
from typing import Any

from secemb_shared.layout import DEFAULT_LOSS, Geometry, plan
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import SMALLEST_COHORT, SQUARED

RING_BITS = 32
SESSIONS = 5  # of a person in a task: rounds beyond that gain little
_FEWEST_ROUNDS = 100
# What each item's vector and bias are pulled by, as if so many ratings of the whole fleet said "nothing special".
_PULLS, _NO_PULLS = (10.0, 4.0), (0.0, 0.0)
_BIAS_RATE, _RANKING_BIAS_RATE = 0.05, 0.02


def build_task(
    *,
    name: str,
    items: int,
    row_width: int,
    capacity: int,
    geometry: Geometry | None = None,
    placement_loss: float = DEFAULT_LOSS,
    dense_size: int = 0,
    ring_bits: int = RING_BITS,
    min_cohort: int = SMALLEST_COHORT,
    **rest: Any,
) -> TaskSpec:
    """Return a task. Its layout is the planned one for `placement_loss` unless a geometry is given.

    `rest` are the other fields of `TaskSpec`: it checks them all, and has defaults for those about time and training.
    """
    if geometry is None:
        geometry = plan(
            items=items, capacity=capacity, row_width=row_width, ring_bits=ring_bits, loss=placement_loss
        ).geometry
    return TaskSpec(
        name=name,
        items=items,
        row_width=row_width,
        dense_size=dense_size,
        capacity=capacity,
        tables=geometry.tables,
        bins=geometry.bins,
        ring_bits=ring_bits,
        min_cohort=min_cohort,
        **rest,
    )


def as_decimal(number: float) -> str:
    """Return a number as tasks have it, or raise `SpecError`."""
    text = f"{number:.12f}"
    text = text.rstrip("0").rstrip(".")
    decimal(text)
    return text


def default_rounds(people: int, cohort: int) -> int:
    """Return how many training rounds a fleet needs: about five sessions of each person."""
    return max(_FEWEST_ROUNDS, math.ceil(SESSIONS * people / cohort))


def default_pulls(loss: str) -> tuple[float, float]:
    """Return the pulls of an item's vector and bias: a loss of ratings needs them, one of choices does not."""
    return _PULLS if loss == SQUARED else _NO_PULLS


def default_bias_rate(loss: str) -> float:
    """Return the learning rate of an item's bias."""
    return _BIAS_RATE if loss == SQUARED else _RANKING_BIAS_RATE


def decay_of(pull: float, people: int) -> float:
    """Return the decay of each step that amounts to a pull, in a fleet of so many people."""
    return 2 * pull / max(1, people)


def direct_geometry(items: int, capacity: int) -> Geometry:
    """Return the paper's direct layout: every key of a device spans the whole catalogue."""
    return Geometry(items=items, tables=1, bins=1, slots_per_bin=capacity)
