"""A round's result from two shares: the plaintext sum, then the optimiser's step or the fleet's figures."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from secemb_party.errors import PeerRefusedError, StateError
from secemb_party.storage import Blob, Model, ModelStore, OptimiserState
from secemb_server0.descent import OPTIMISERS
from secemb_server0.figures import read_evaluations
from secemb_server0.gradient import AddedShares, Gradient, Sum
from secemb_server0.guard import Guard
from secemb_server0.optimiser import Optimiser, Rates
from secemb_shared.errors import LengthError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal, signed_decimal
from secemb_shared.messages.spec import SQUARED, SURVEY, SURVEY_CAPACITIES
from secemb_shared.secure_sum import SUM_RING

KEPT_SHARE = 0.9  # fraction of all devices' items that the suggested m' keeps


def add_shares(spec: RoundSpec, own: Blob, other: Blob) -> AddedShares:
    """Return the plaintext sum of this server's share and server 1's."""
    try:
        return AddedShares.of(spec, own, other)
    except LengthError:
        raise PeerRefusedError(
            "server 1's share does not match this round; check that both servers run the same version"
        ) from None


class Stepped(NamedTuple):
    """The model after a round's step, and how many rows the guard limited in it; None: the step was taken before."""

    model: Model
    limited: int | None


def take_step(store: ModelStore, spec: RoundSpec, total: Sum, sessions: int) -> Stepped:
    """Return the model after a round's step, which is taken only once, even after a crash."""
    task, target = spec.task, spec.model_version + 1
    state = store.load_state()
    if state is not None and state.version == target:
        return Stepped(store.load(target), None)
    optimiser = make_optimiser(task)
    if (state.version if state is not None else 0) != spec.model_version:
        raise StateError(
            "the optimiser state is missing; restore a backup, or reset the optimiser with `secemb model"
            " reset-optimiser`"
        )
    if state is not None:
        optimiser.restore(state, copy=False)
    model = store.save_step(
        optimiser.step_in_blocks(store.load(spec.model_version), _mean(task, total, sessions)),
    )
    return Stepped(model, optimiser.guard.limited["rows"] if optimiser.guard is not None else 0)


def fresh_state(task: TaskSpec, version: int) -> OptimiserState:
    """Return the initial state of an optimiser at this version."""
    return OptimiserState(task_id=task.task_id, version=version, kind=task.optimiser, steps=0, tensors={})


def make_optimiser(task: TaskSpec) -> Optimiser:
    """Return the task's optimiser with its rates and its guard."""
    multiple = decimal(task.guard)
    guard = Guard(multiple) if multiple else None
    return OPTIMISERS[task.optimiser](Rates.of(task), guard=guard, row_bits=task.row_bits)


def move_model(optimiser: Optimiser, task: TaskSpec, model: Model, total: Sum, sessions: int) -> Model:
    """Return the next version, in memory."""
    return optimiser.step(model, _mean(task, total, sessions))


def _mean(task: TaskSpec, total: Sum, sessions: int) -> Gradient:
    return Gradient.mean(task.ring, rows=total.rows, dense=total.dense, sessions=sessions)


def read_result(spec: RoundSpec, total: Sum, sessions: int) -> dict[str, float]:
    """Return the fleet's figures of one round; a figure without contributions is left out."""
    sums = read_sums(total)
    return _read_survey(sums, sessions, spec.task) if spec.kind == SURVEY else read_evaluations(spec.task, [sums])


def read_sums(total: Sum) -> list[float]:
    """Return the numbers of a round's secure sum."""
    return [float(value) for value in SUM_RING.decode(total.sums)]


def _read_survey(sums: list[float], sessions: int, task: TaskSpec) -> dict[str, float]:
    total, above, below, squares, *kept = sums
    found = {"mean_items": total / sessions, "suggested_capacity": float(suggest_capacity(total, kept, task.items))}
    if total > 0 and task.loss == SQUARED:
        mean, spread = (above - below) / total, decimal(task.spread)
        found["mean_rating"] = signed_decimal(task.centre) + spread * mean
        found["rating_spread"] = spread * math.sqrt(max(squares / total - mean * mean, 0.0))
    return found


def suggest_capacity(total: float, kept: Sequence[float], items: int, share: float = KEPT_SHARE) -> int:
    """Return the smallest m' that keeps this fraction of all items, at least 1 and at most the whole catalogue.

    The number of items that a capacity keeps is known for `SURVEY_CAPACITIES`. Between two of them it lies above the
    straight line, so linear interpolation gives a sufficient m'.
    """
    wanted = share * total
    points: list[tuple[int, float]] = [(0, 0.0), *zip(SURVEY_CAPACITIES, kept, strict=True)]
    for (low, less), (high, more) in pairwise(points):
        if more >= wanted > less:
            return min(items, low + math.ceil((high - low) * (wanted - less) / (more - less)))
    return min(items, SURVEY_CAPACITIES[-1]) if wanted > 0 else 1
