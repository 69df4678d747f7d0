"""The fleet's figures from the sums of evaluations: errors and rankings, with baselines and intervals.

A figure is a ratio of two sums over devices, such as squared errors by predictions. Its interval shows where it would
lie for other devices of the same fleet in 95 of 100 cases (delta method). Without noise, sums of squares show how much
devices differ. With noise, these are not sent, and the differences between rounds of the window, which include the
noise, are used instead. The window is the newest rounds, each with devices of its own. docs/evaluation.md has the
definitions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from secemb_party.ledger import Ledger
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.measures import FIRST_PLACES, WINDOW, EvaluationSums, EventSums
from secemb_shared.messages.spec import EVALUATE
from secemb_shared.secure_sum import SUM_RING

Sums = EvaluationSums | EventSums
NORMAL = 1.96  # standard deviations that contain 95 of 100 cases
_STUDENT = {3: 4.303, 4: 3.182, 5: 2.776}  # the same if the deviation is estimated from this many rounds
_LEAST = 3.0  # a count must exceed this many standard deviations of its noise to be a divisor
_RANKINGS = {"hit_rate": "hits", "recall": "recall", "ndcg": "ndcg", "mrr": "reciprocal"}  # figure: name of its sum
_WHOLE = {"whole_hit_rate": "whole_hits", "whole_ndcg": "whole_ndcg", "whole_mrr": "whole_reciprocal"}
_LARGEST_SURPRISE = 700.0  # largest number whose exponential is a finite float
_LOOKED_AT = 20  # of the newest events, including surveys and repeated steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Sums over groups (devices, people or rounds) of two numbers, their squares and their product."""

    above: float
    below: float
    above_2: float
    both: float
    below_2: float
    groups: float

    @classmethod
    def over(cls, pairs: Sequence[tuple[float, float]]) -> Self:
        """Return the moments of these pairs of numerator and denominator."""
        return cls(
            above=math.fsum(y for y, _ in pairs),
            below=math.fsum(x for _, x in pairs),
            above_2=math.fsum(y * y for y, _ in pairs),
            both=math.fsum(x * y for y, x in pairs),
            below_2=math.fsum(x * x for _, x in pairs),
            groups=len(pairs),
        )

    def interval(self, deviations: float = NORMAL) -> tuple[float, float] | None:
        """Return the ends of the interval of Σ above / Σ below; None for a single group."""
        if self.groups <= 1 or self.below <= 0:
            return None
        ratio = self.above / self.below
        spread = max(self.above_2 - 2 * ratio * self.both + ratio * ratio * self.below_2, 0.0)
        half = deviations * math.sqrt(spread * self.groups / (self.groups - 1)) / self.below
        return ratio - half, ratio + half


def read_evaluations(task: TaskSpec, rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the figures of one or more evaluations, given by their sums; figures without contributions are left out.

    Ends of intervals are called `…_low` and `…_high`; `mean_…`, `biases_…` and `popular_…` are simpler ones.
    """
    kind = task.measured
    parts = [kind.read(sums) for sums in rounds]
    total = kind.read([math.fsum(column) for column in zip(*rounds, strict=True)] or [0.0] * len(kind.names()))
    least = _LEAST * _noise(task) * math.sqrt(len(rounds))
    found: dict[str, float] = {}
    if isinstance(total, EvaluationSums) and total.predictions > least:
        found |= _errors(task, [one for one in parts if isinstance(one, EvaluationSums)], total)
    if total.rankings > least:
        found |= {"rankings": total.rankings, "k": FIRST_PLACES, "strangers": task.strangers}
        for figure, name in (_RANKINGS | (_WHOLE if task.ranks_whole_table else {})).items():
            found |= _ranking(task, parts, total, figure, name)
        if isinstance(total, EventSums) and task.privacy is None and task.ranks_whole_table:
            found |= _perplexity(total)
    return found


def _errors(task: TaskSpec, parts: Sequence[EvaluationSums], total: EvaluationSums) -> dict[str, float]:
    count, size = total.predictions, task.capacity
    by_device = Moments(
        above=total.squared,
        below=count,
        above_2=total.squared_2 * size,
        both=total.both * size,
        below_2=total.predictions_2 * size,
        groups=total.rankings,
    )
    by_round = [(one.squared, one.predictions) for one in parts]
    mean = (total.above - total.below) / count  # of the ratings, relative to the task's centre
    found = {
        "rmse": _root(total.squared / count),
        "mae": max(total.absolute / count, 0.0),
        "mean_rmse": _root(total.spread / count - mean * mean),
        "biases_rmse": _root(total.biases / count),
    }
    ends = _interval(task, by_device, by_round)
    if ends is not None:
        found |= {"rmse_low": _root(ends[0]), "rmse_high": _root(ends[1])}
    spread = decimal(task.spread)  # the unit in which devices measure
    return {"predictions": count, **{name: spread * number for name, number in found.items()}}


def _ranking(task: TaskSpec, parts: Sequence[Sums], total: Sums, figure: str, name: str) -> dict[str, float]:
    value, count = getattr(total, name), total.rankings
    by_device = Moments(
        above=value,
        below=count,
        above_2=getattr(total, f"{name}_2", value),  # a hit is 1, so its square is too
        both=value,
        below_2=count,
        groups=count,
    )
    by_round = [(getattr(one, name), one.rankings) for one in parts]
    found = {figure: value / count, f"popular_{figure}": getattr(total, f"popular_{name}") / count}
    ends = _interval(task, by_device, by_round)
    if ends is not None:
        found |= {f"{figure}_low": ends[0], f"{figure}_high": ends[1]}
    return {key: min(max(number, 0.0), 1.0) for key, number in found.items()}  # noise can exceed this


def _perplexity(total: EventSums) -> dict[str, float]:
    """Return exp of the mean surprise: the number of equally likely items that would be as uncertain."""
    count = total.rankings
    moments = Moments(
        above=total.surprise,
        below=count,
        above_2=total.surprise_2,
        both=total.surprise,
        below_2=count,
        groups=count,
    )
    found = {"perplexity": total.surprise / count}
    if (ends := moments.interval()) is not None:
        found |= {"perplexity_low": ends[0], "perplexity_high": ends[1]}
    return {name: math.exp(min(value, _LARGEST_SURPRISE)) for name, value in found.items()}


def _interval(
    task: TaskSpec, by_device: Moments, by_round: Sequence[tuple[float, float]]
) -> tuple[float, float] | None:
    if task.privacy is None:
        return by_device.interval()
    if len(by_round) not in _STUDENT:
        return None
    return Moments.over(by_round).interval(_STUDENT[len(by_round)])


def _noise(task: TaskSpec) -> float:
    """Return the standard deviation of the noise of both servers on each sum of one evaluation."""
    mechanism = None if task.privacy is None else task.privacy.sums(EVALUATE)
    return 0.0 if mechanism is None else math.sqrt(2 * mechanism.variance) / 2.0**SUM_RING.fraction_bits


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))


async def describe_window(ledger: Ledger, task: TaskSpec, number: int, sums: Sequence[float]) -> dict[str, Any]:
    """Return the sums of the evaluation with this number, and the figures of the window that ends with it."""
    results = await ledger.recent_events("result", limit=_LOOKED_AT, task=task.task_id)
    rollbacks = await ledger.recent_events("rollback", limit=_LOOKED_AT, task=task.task_id)
    # Measurements before a rollback are of a model that is gone.
    since = max((event.event_id for event in rollbacks if "version" in event.data), default=0)
    by_round = {number: sums}
    for event in results:  # newest first; a step that was repeated after a crash counts once
        if event.event_id > since and len(event.data.get("sums", ())) == len(sums):
            by_round.setdefault(int(event.data["round"]), event.data["sums"])
    return {"sums": list(sums), "window": pool(task, by_round)}


def pool(task: TaskSpec, by_round: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """Return the figures of the newest evaluations together, and their rounds; evaluations are given by their sums."""
    rounds = sorted(by_round)[-WINDOW:]
    return {"rounds": rounds, **read_evaluations(task, [by_round[one] for one in rounds])}
