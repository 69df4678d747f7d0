"""What a device measures in a round of kind `evaluate`: the numbers of the round's secure sum, in order.

    errors     of the model's predictions of held-out ratings, and of two simpler ones of the same ratings:
               the mean of all of them, and the biases alone (the model without its vectors)
    rankings   a device ranks its held-out items among strangers, which are items that it has not rated: once by the
               model's scores, once by the items' biases, which approximate popularity
    whole      in a task about events: the same among the whole catalogue, except for what the device has chosen

A rating r is z = (r − c) / s here, with the task's centre c and spread s, and so are predictions and their errors.
All numbers are zero or more: if the unit of privacy is a record, the noise depends on it. docs/evaluation.md explains
the figures that are computed from them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

FIRST_PLACES = 10  # k of the hit rate, recall and NDCG
MOST_STRANGERS = 100
WHOLE_TABLE = 1 << 24  # largest table, as float32, that a device fetches to rank in the whole catalogue, in bytes
WINDOW = 5  # newest evaluations that the fleet's figures are computed from
PATIENCE = 4  # evaluations without a better window after which more rounds may not help


def count_strangers(capacity: int) -> int:
    """Return how many strangers held-out items are ranked among, given the capacity (m') of the task."""
    return min(MOST_STRANGERS, capacity // 3)


@dataclass(frozen=True, slots=True)
class Mark:
    """The quality of the model by the figures of a window (lower is better), with the ends of its interval."""

    value: float
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, window: Mapping[str, Any]) -> Self | None:
        """Return the mark of a window; None if it is incomplete.

        Different people measure each time, so only a full window of evaluations separates progress from chance.
        Dividing by the spread of its ratings removes differences in how hard they are to predict. Biases would not do
        this: the ones that devices compare with are the model's own, and improve with it.
        """
        if len(window.get("rounds", ())) < WINDOW:
            return None
        if "rmse" in window:
            name, unit = "rmse", window["mean_rmse"]
        else:
            name, unit = "ndcg", -1.0
        if name not in window or not unit:
            return None
        ends = [window[end] / unit for end in (f"{name}_low", f"{name}_high") if end in window]
        return cls(window[name] / unit, *sorted(ends))


def find_stall(marks: Sequence[Mark], *, patience: int, settles: bool) -> int | None:
    """Return the position of the best mark if it is this many evaluations old and more rounds would not help, or None.

    If rates decay to zero, a model settles in its last rounds and improves by it, although evaluations of different
    people no longer show this. In that case the newest must clearly be worse: the two intervals must not overlap.
    """
    best = min(range(len(marks)), key=lambda place: marks[place].value, default=0)
    if not 0 < patience < len(marks) - best:
        return None
    return best if not settles or marks[-1].low > marks[best].high else None


def most_held_out(capacity: int) -> int:
    """Return how many held-out ratings a device predicts at most, given the capacity (m') of the task."""
    return max(1, capacity // 2 - count_strangers(capacity))


class _Sums:
    """Named numbers in a fixed order."""

    __slots__ = ()

    @classmethod
    def read(cls, values: Sequence[float]) -> Self:
        """Return the numbers of a decoded sum."""
        return cls(**dict(zip(cls.names(), map(float, values), strict=True)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the numbers, in order."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return the numbers in order."""
        return np.array([getattr(self, name) for name in self.names()], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvaluationSums(_Sums):
    """The numbers of one device, or their sums over many. Those of one device are private."""

    predictions: float = 0.0  # n, how many held-out ratings were predicted
    squared: float = 0.0  # Σ e², their squared errors
    absolute: float = 0.0  # Σ |e|
    above: float = 0.0  # Σ max(z, 0)
    below: float = 0.0  # Σ max(−z, 0)
    spread: float = 0.0  # Σ z²
    biases: float = 0.0  # Σ e² of the predictions by biases alone
    predictions_2: float = 0.0  # n² / m'; this and the next two show how much devices differ
    both: float = 0.0  # n · Σ e² / m'
    squared_2: float = 0.0  # (Σ e²)² / m'
    rankings: float = 0.0  # 1 if there was a ranking
    hits: float = 0.0  # 1 if a held-out item is among the first k
    recall: float = 0.0  # at k
    ndcg: float = 0.0  # at k
    reciprocal: float = 0.0  # one over the rank of the first held-out item
    recall_2: float = 0.0  # the squares of the last three, which show how much devices differ
    ndcg_2: float = 0.0
    reciprocal_2: float = 0.0
    popular_hits: float = 0.0  # of the ranking by biases
    popular_recall: float = 0.0
    popular_ndcg: float = 0.0
    popular_reciprocal: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EventSums(_Sums):
    """The same in a task about events: there are no ratings, and each device holds out one event."""

    rankings: float = 0.0
    hits: float = 0.0  # among strangers
    recall: float = 0.0  # one event is held out, so this is the number of hits
    ndcg: float = 0.0
    reciprocal: float = 0.0
    recall_2: float = 0.0
    ndcg_2: float = 0.0
    reciprocal_2: float = 0.0
    popular_hits: float = 0.0
    popular_recall: float = 0.0
    popular_ndcg: float = 0.0
    popular_reciprocal: float = 0.0
    whole_hits: float = 0.0  # in the whole catalogue; zeros if the table is too large for that
    whole_ndcg: float = 0.0
    whole_reciprocal: float = 0.0
    whole_ndcg_2: float = 0.0
    whole_reciprocal_2: float = 0.0
    popular_whole_hits: float = 0.0
    popular_whole_ndcg: float = 0.0
    popular_whole_reciprocal: float = 0.0
    surprise: float = 0.0  # −log of the probability that the model gave the event among all items; not sent with noise
    surprise_2: float = 0.0


SUM_NAMES = EvaluationSums.names()
