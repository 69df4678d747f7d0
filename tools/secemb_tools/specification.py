"""The one builder of task specifications: `secemb task create`, plans, simulations and measurements all use it."""

import math
from dataclasses import dataclass
from typing import Any, Self

from secemb_sdk.models.ridge import Penalties
from secemb_shared.errors import SpecError
from secemb_shared.layout import DEFAULT_LOSS, Geometry, plan
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import signed_decimal
from secemb_shared.messages.privacy import Privacy
from secemb_shared.messages.spec import BPR, SMALLEST_COHORT, SOFTMAX, SQUARED
from secemb_shared.norm import NormShape
from secemb_shared.row_words import SINGLE

RING_BITS, SMALL_RING_BITS = 32, 24
GUARD = 8.0  # multiple of the usual norm of a row: honest rows hardly ever exceed it
SESSIONS = 5  # sessions of a person in a task: more rounds gain little
_MOST_SESSIONS = 8  # if items are rare
_UPDATES = 100  # ratings of an item in a task, on average, that its bias needs to converge
_FEWEST_ROUNDS = 100
# The pull on each item's vector and bias, as if this many ratings of the whole fleet said "nothing special".
_ROW_PULL, _BIAS_PULL = 10.0, 3.5
# Without a pull, vectors of choices learn noise; biases learn popularity, as they should. Models of events have none.
_CHOICE_PULLS, _NO_PULLS = (20.0, 0.0), (0.0, 0.0)
_LEAST_PULL = 1.0
_NOISE = 0.85  # standard deviation of the residual after biases, if that of ratings is 1
_MARGIN, _SPARSE_MARGIN = 0.5, 0.8
_BIAS_RATE, _RANKING_BIAS_RATE = 0.05, 0.02
# The norm bound for each square root of the capacity, for models of rows alone and for those with a dense part. On
# MovieLens no update was longer than 3.9 and 12.5; ratings that are not in units of their spread make longer ones.
_ROW_NORM, _DENSE_NORM = 12.0, 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """The average number of ratings of each person and of each item."""

    of_person: float
    of_item: float

    @classmethod
    def of(cls, *, ratings: int, people: int, items: int) -> Self:
        """Return the density for these counts."""
        return cls(of_person=max(1.0, ratings / people), of_item=max(1.0, ratings / items))


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
    fraction_bits: int,
    row_bits: int = SINGLE,
    min_cohort: int = SMALLEST_COHORT,
    privacy: Privacy | None = None,
    norm_bound: int | None = None,
    **rest: Any,
) -> TaskSpec:
    """Return a task. Its layout is the planned one for `placement_loss` unless a geometry is given.

    Without a norm bound, in steps, the task has one that does not affect honest devices; 0 means none.

    `rest` are the other fields of `TaskSpec`, which checks them all, and has defaults for timing and training.
    """
    if geometry is None:
        planned = plan(items=items, capacity=capacity, row_width=row_width, ring_bits=ring_bits, loss=placement_loss)
        geometry = planned.geometry
    if norm_bound is None:
        norm_bound = _norm_bound(capacity, dense_size, ring_bits, fraction_bits, privacy)
    return TaskSpec(
        name=name,
        items=items,
        row_width=row_width,
        dense_size=dense_size,
        capacity=capacity,
        tables=geometry.tables,
        bins=geometry.bins,
        ring_bits=ring_bits,
        fraction_bits=fraction_bits,
        row_bits=row_bits,
        min_cohort=min_cohort,
        privacy=privacy,
        norm_bound=norm_bound,
        **rest,
    )


def _norm_bound(capacity: int, dense_size: int, ring_bits: int, fraction_bits: int, privacy: Privacy | None) -> int:
    """Return a norm bound that does not affect honest devices; 0 if no proof would be possible for it.

    In the 24-bit ring the largest bound that can be proved will do if it is at least half of the usual one. If it is
    not, the operator must choose: giving up the proof because of shorter messages would go unnoticed.
    """
    largest = NormShape.largest_bound(ring_bits)
    wanted = default_norm_bound(capacity, dense_size, fraction_bits) if privacy is None else privacy.longest(capacity)
    if wanted <= largest:
        return wanted
    if ring_bits != SMALL_RING_BITS:
        return 0
    if privacy is None and wanted <= 2 * largest:
        return largest
    raise SpecError(
        f"in the 24-bit ring with {fraction_bits} fraction bits devices can only prove that an update is at most"
        f" {largest / 2.0**fraction_bits:g} long, but honest ones of this task may be longer; use fewer fraction bits,"
        " a smaller capacity or the 32-bit ring, or give up the proof with a norm bound of 0"
    )


def fraction_bits_of(ring_bits: int, given: int | None = None, *, capacity: int, dense_size: int = 0) -> int:
    """Return the fraction bits of a ring, if none are given: half of its bits, and at most 16.

    In the 24-bit ring there are fewer if the norm proof needs the room.
    """
    if given is not None:
        return given
    bits = min(16, ring_bits // 2)
    if ring_bits == SMALL_RING_BITS:
        while bits and default_norm_bound(capacity, dense_size, bits) > 2 * NormShape.largest_bound(ring_bits):
            bits -= 1
    return bits


def default_norm_bound(capacity: int, dense_size: int, fraction_bits: int) -> int:
    """Return the norm bound of a device's whole update, in steps, if no privacy budget sets it."""
    factor = _DENSE_NORM if dense_size else _ROW_NORM
    return math.ceil(factor * math.sqrt(capacity) * 2.0**fraction_bits)


def as_decimal(number: float) -> str:
    """Return a number as written in tasks, or raise `SpecError`."""
    text = f"{number:.12f}".rstrip("0").rstrip(".")
    text = "0" if text == "-0" else text
    signed_decimal(text)
    return text


def default_rounds(people: int, cohort: int, density: Density | None = None) -> int:
    """Return how many training rounds a fleet needs: about five sessions of each person, more where items are rare."""
    sessions = float(SESSIONS)
    if density is not None:
        sessions = min(max(sessions, _UPDATES / density.of_item), _MOST_SESSIONS)
    return max(_FEWEST_ROUNDS, math.ceil(sessions * people / cohort))


def default_pulls(loss: str, density: Density | None = None) -> tuple[float, float]:
    """Return the pulls of an item's vector and bias.

    For ratings they follow from the number of ratings. Vectors of people and items are zero where the product of their
    penalties is above the square of the largest singular value of what biases leave of the ratings. For noise alone
    that is √n + √k, times its size, with n ratings of a person and k of an item. The pull makes the product a share of
    it, the larger the fewer ratings there are.
    """
    if loss != SQUARED:
        return _CHOICE_PULLS if loss in (BPR, SOFTMAX) else _NO_PULLS
    if density is None:
        return _ROW_PULL, _BIAS_PULL
    person, item = density.of_person, density.of_item
    share = _MARGIN + _SPARSE_MARGIN * (person**-0.5 + item**-0.5)
    wanted = (share * _NOISE * (person**0.5 + item**0.5)) ** 2
    pull = wanted / (Penalties.rating * person + Penalties.person) - Penalties.rating * item
    return max(_LEAST_PULL, pull), _BIAS_PULL


def default_bias_rate(loss: str) -> float:
    """Return the learning rate of an item's bias."""
    return _BIAS_RATE if loss == SQUARED else _RANKING_BIAS_RATE


def decay_of(pull: float, people: int) -> float:
    """Return the decay per step that is equivalent to a pull, in a fleet of this many people."""
    return 2 * pull / max(1, people)


def direct_geometry(items: int, capacity: int) -> Geometry:
    """Return the paper's direct layout: every key of a device spans the whole catalogue."""
    return Geometry(items=items, tables=1, bins=1, slots_per_bin=capacity)
