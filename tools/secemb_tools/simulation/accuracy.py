"""Accuracy of predictions and rankings of held-out interactions in a whole test set, as defined in docs/evaluation.md.

A ranking is of the whole catalogue without the person's training items, or of held-out items among sampled strangers.
Intervals are 95 % confidence intervals over people.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_sdk.round.measure import Ranking, rank
from secemb_server0.figures import Moments
from secemb_shared.messages.measures import FIRST_PLACES
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet, Split

Numbers = npt.NDArray[np.floating]
ScoresOf = Callable[[Indices], Numbers]  # people → (people, items), a score for each item

_BLOCK = 64  # items of a ranking that are processed together
_TOGETHER = 256  # people whose scores are computed at once


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval, which a single person does not have."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def ratio(cls, above: Numbers, below: Numbers) -> "Estimate":
        """Return Σ above / Σ below, for one pair of numbers per person."""
        found = Moments.over(list(zip(above.tolist(), below.tolist(), strict=True)))
        return cls(found.above / found.below, *(found.interval() or (None, None)))

    def root(self) -> "Estimate":
        """Return the square root."""
        ends = (None if end is None else max(end, 0.0) ** 0.5 for end in (self.low, self.high))
        return Estimate(self.value**0.5, *ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingFigures:
    """Errors of predicted ratings."""

    interactions: int
    people: int
    rmse: Estimate
    mae: Estimate

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingFigures:
    """Rankings of held-out items, one for each person who has any."""

    interactions: int
    people: int
    k: int
    strangers: int | None  # number of items ranked among; None: the whole catalogue
    hit_rate: Estimate
    recall: Estimate
    ndcg: Estimate
    mrr: Estimate
    coverage: float | None  # the share of the catalogue that is among the first k of at least one person

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


def measure_ratings(predictions: Numbers, data: Split) -> RatingFigures:
    """Return the errors of predictions, one per test rating, clipped to the range of the training ratings."""
    lowest, highest = float(data.train.values.min()), float(data.train.values.max())
    errors = np.clip(predictions.astype(np.float64), lowest, highest) - data.test.values
    people, place = np.unique(data.test.people, return_inverse=True)
    counts, squares, sizes = (
        np.bincount(place, weights=one).astype(np.float64) for one in (np.ones(errors.size), errors**2, np.abs(errors))
    )
    return RatingFigures(
        interactions=errors.size,
        people=people.size,
        rmse=Estimate.ratio(squares, counts).root(),
        mae=Estimate.ratio(sizes, counts),
    )


def measure_ranking(
    scores_of: ScoresOf, data: Split, *, k: int = FIRST_PLACES, strangers: int | None = None, seed: int = 0
) -> RankingFigures:
    """Return the ranking figures of everybody's held-out items, in the whole catalogue or among this many strangers."""
    trained, held = _items_of(data.train), _items_of(data.test)
    people = np.flatnonzero([own.size > 0 for own in held])
    rankings: list[Ranking] = []
    seen = np.zeros(data.test.item_count, dtype=np.bool_)
    for begin in range(0, people.size, _TOGETHER):
        some = people[begin : begin + _TOGETHER]
        for person, scores in zip(some.tolist(), scores_of(some), strict=True):
            relevant, others = scores[held[person]], scores.copy()
            others[trained[person]] = -np.inf
            if strangers is None:
                seen[_first(others, k)] = True
            others[held[person]] = -np.inf
            if strangers is not None:
                others = _draw(others, strangers, np.random.default_rng([seed, person]))
            rankings.append(rank(relevant, others, k))
    return RankingFigures(
        interactions=data.test.items.size,
        people=people.size,
        k=k,
        strangers=strangers,
        hit_rate=_mean([one.hit for one in rankings]),
        recall=_mean([one.recall for one in rankings]),
        ndcg=_mean([one.ndcg for one in rankings]),
        mrr=_mean([one.reciprocal for one in rankings]),
        coverage=float(seen.mean()) if strangers is None else None,
    )


def _items_of(ratings: RatingSet) -> list[Indices]:
    """Return everybody's items, regardless of the order of the set."""
    order = np.argsort(ratings.people, kind="stable")
    ends = np.searchsorted(ratings.people[order], np.arange(ratings.person_count + 1))
    return [ratings.items[order[begin:end]] for begin, end in pairwise(ends)]


def _first(scores: Numbers, k: int) -> Indices:
    """Return the k items with the largest scores, without the excluded ones."""
    largest = np.sort(np.maximum.reduceat(scores, np.arange(0, scores.size, _BLOCK)))[-k:]
    # Each of k blocks has a score this large, so no smaller one is among the first k. That leaves few candidates.
    bound = largest[0] if largest.size == k else -np.inf
    likely = np.flatnonzero((scores >= bound) & (scores > -np.inf))
    return likely[np.argsort(scores[likely], kind="stable")[-k:]]


def _draw(scores: Numbers, count: int, random: np.random.Generator) -> Numbers:
    """Return the scores of this many items, or of all if there are fewer."""
    kept = scores[scores > -np.inf]
    return random.choice(kept, min(count, kept.size), replace=False, shuffle=False)


def _mean(values: list[float]) -> Estimate:
    return Estimate.ratio(np.array(values), np.ones(len(values)))
