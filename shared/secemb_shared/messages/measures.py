"""What a device measures in a round of kind `evaluate`: the numbers of the round's secure sum, by name and in order.

    errors     of the model's predictions of held-out ratings, and of two simpler ones of the same ratings:
               the mean of all of them, and the biases alone (the model without its vectors)
    rankings   a device ranks its held-out items among strangers, items that it has not rated: once with the model's
               scores, once with the items' biases, which stand for popularity
    whole      in a task about events: the same in the whole catalogue, but for what the device has chosen

A rating r is z = (r − c) / s here, with the task's centre c and spread s, and so are predictions and their errors.
All numbers are zero or more: where the unit of privacy is a record, the noise rests on it. docs/evaluation.md says what
follows from them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

FIRST_PLACES = 10  # k of the hit rate, recall and NDCG
MOST_STRANGERS = 100
WHOLE_TABLE = 1 << 24  # bytes of a table in float32 that a device fetches to rank in the whole catalogue
WINDOW = 5  # evaluations that the fleet's figures are from, the newest ones
PATIENCE = 4  # evaluations without a better window after which more rounds may not help


def count_strangers(capacity: int) -> int:
    """Return how many strangers held-out items are ranked among, by the capacity (m') of the task."""
    return min(MOST_STRANGERS, capacity // 3)


@dataclass(frozen=True, slots=True)
class Mark:
    """How good the model is by the figures of a window, less is better, with the ends of its interval."""

    value: float
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, window: Mapping[str, Any]) -> Self | None:
        """Return the mark of a window; None where it is not whole.

        Other people measure each time, so that only a whole window of evaluations tells progress from chance. The
        spread of its ratings takes out how hard they are to predict. Biases would not: those that devices compare with
        are the model's own, and improve with it.
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
    """Return the place of the best mark if it is this many evaluations old and more rounds would not help, or None.

    Where rates fall to nothing a model settles in its last rounds, and is better for it though evaluations of other
    people no longer tell. There the newest must be worse beyond doubt: the two intervals have nothing in common.
    """
    best = min(range(len(marks)), key=lambda place: marks[place].value, default=0)
    if not 0 < patience < len(marks) - best:
        return None
    return best if not settles or marks[-1].low > marks[best].high else None


def most_held_out(capacity: int) -> int:
    """Return how many held-out ratings a device predicts at most, by the capacity (m') of the task."""
    return max(1, capacity // 2 - count_strangers(capacity))


class _Sums:
    """Numbers by name and in order."""

    __slots__ = ()

    @classmethod
    def read(cls, values: Sequence[float]) -> Self:
        """Return the numbers of a decoded sum by name."""
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
    biases: float = 0.0  # Σ e² of the biases alone
    predictions_2: float = 0.0  # n² / m'; this and the next two say how much devices differ
    both: float = 0.0  # n · Σ e² / m'
    squared_2: float = 0.0  # (Σ e²)² / m'
    rankings: float = 0.0  # 1 where there was a ranking
    hits: float = 0.0  # 1 where a held-out item is among the first k
    recall: float = 0.0  # at k
    ndcg: float = 0.0  # at k
    reciprocal: float = 0.0  # one over the place of the first held-out item
    recall_2: float = 0.0  # the squares of the last three, which say how much devices differ
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
    recall: float = 0.0  # one event is held out, so that this is the hits
    ndcg: float = 0.0
    reciprocal: float = 0.0
    recall_2: float = 0.0
    ndcg_2: float = 0.0
    reciprocal_2: float = 0.0
    popular_hits: float = 0.0
    popular_recall: float = 0.0
    popular_ndcg: float = 0.0
    popular_reciprocal: float = 0.0
    whole_hits: float = 0.0  # in the whole catalogue; nothing where the table is too large for that
    whole_ndcg: float = 0.0
    whole_reciprocal: float = 0.0
    whole_ndcg_2: float = 0.0
    whole_reciprocal_2: float = 0.0
    popular_whole_hits: float = 0.0
    popular_whole_ndcg: float = 0.0
    popular_whole_reciprocal: float = 0.0
    surprise: float = 0.0  # −log of the chance that the model gave the event among all items; not sent with noise
    surprise_2: float = 0.0


SUM_NAMES = EvaluationSums.names()
