"""The measurements of an evaluation: how well the model predicts and ranks held-out data.

The same held-out items are also predicted and ranked without the model, so that each figure has a baseline on
exactly the same interactions. docs/evaluation.md has the definitions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats, Model, PrivateState
from secemb_sdk.models.limits import Doubles
from secemb_sdk.models.scale import Scale
from secemb_sdk.models.update import fit_private
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.whole_table import WholeTable
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.measures import FIRST_PLACES
from secemb_shared.messages.spec import SQUARED
from secemb_shared.randomness import Indices
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

_SPREAD = "recall", "ndcg", "reciprocal", "whole_ndcg", "whole_reciprocal", "surprise"  # whose squares are also sent
RIDGE = 3.0  # shrinkage of a person's bias towards zero, in ratings
_LARGEST = SUM_BOUND / 2.0**SUM_RING.fraction_bits  # of one number; only a diverged model comes near it


@dataclass(frozen=True, slots=True)
class Ranking:
    """How one person's relevant items rank among others."""

    hit: float  # 1 if one of them is among the first k
    recall: float  # the share of them among the first k
    ndcg: float  # the gain of the first k places, as a share of the largest possible
    reciprocal: float  # one divided by the rank of the first of them


def measure(
    task: TaskSpec,
    model: Model,
    private: PrivateState,
    selection: Selection,
    items: Indices,
    rows: Floats,
    dense: Floats,
    whole: WholeTable | None = None,
) -> Doubles:
    """Return the numbers of `task.measured`; `rows[i]` is the row of `items[i]`.

    A task that ranks the whole catalogue needs the whole table; a device without it ranks nothing.
    """
    order = np.argsort(items)  # float sums depend on the order, and items are in the order of their slots
    items, rows = items[order], rows[order]
    values, held = selection.ratings_of(items).values, selection.are_held_out(items)
    strangers = np.isnan(values)
    trained = ~held & ~strangers
    # If the unit of privacy is a record, a solved private part depends on other ratings too. This does not matter
    # here, because the numbers of an evaluation are clipped as a whole.
    # For events, the window itself tells where their rows are.
    known = trained if selection.window is None else np.ones_like(trained)
    private = fit_private(model, private, rows[known], dense, selection.ratings_of(items[known]))
    scores = model.scores(rows, dense, private.values, items).astype(np.float64)
    biases = rows[:, -1].astype(np.float64)
    given = values.astype(np.float64)
    numbers: dict[str, float] = {}
    if task.loss == SQUARED:
        scale, person = Scale.of(task), (given[trained] - biases[trained]).sum() / (np.count_nonzero(trained) + RIDGE)
        numbers |= _errors(given[held], scale.cut(scores[held]), scale.cut(biases[held] + person))
    if task.ranks_whole_table:
        if whole is not None and held.any():
            by_model, by_bias = whole.score(model, dense, private.values)
            numbers |= _rank_whole(whole, by_model, by_bias, int(items[held][0]))
            numbers |= _surprise(by_model, int(items[held][0]))
    elif held.any() and strangers.any():
        numbers |= _rankings(
            rank(scores[held], scores[strangers], FIRST_PLACES), rank(biases[held], biases[strangers], FIRST_PLACES)
        )
    # Numbers for the variance over devices are large, and a clip would scale down all others with them.
    numbers |= _differences(numbers, task.capacity) if task.privacy is None else {"surprise": 0.0}
    kept = {name: numbers[name] for name in task.measured.names() if name in numbers}
    return np.minimum(task.measured(**kept).numbers(), _LARGEST)


def rank(relevant: npt.NDArray[np.floating], others: npt.NDArray[np.floating], k: int) -> Ranking:
    """Return how relevant items rank among others by their scores; in ties the relevant item comes last."""
    places = np.sort([np.count_nonzero(others >= score) for score in relevant])
    places += np.arange(1, places.size + 1)  # the relevant ones before it
    first = places[places <= k]
    ideal = (1 / np.log2(np.arange(2, 2 + min(k, places.size)))).sum()
    return Ranking(
        hit=float(first.size > 0),
        recall=first.size / places.size,
        ndcg=float((1 / np.log2(first + 1)).sum() / ideal),
        reciprocal=1 / float(places[0]),
    )


def _rank_whole(whole: WholeTable, scores: Doubles, biases: Doubles, held: int) -> dict[str, float]:
    """Return how an item ranks among some strangers and among all."""
    relevant = np.array([held])
    few, every = (
        [rank(one[relevant], one[others], FIRST_PLACES) for one in (scores, biases)]
        for others in (whole.some_strangers(), whole.all_strangers())
    )
    found = _rankings(*few)
    return found | {_whole(name): number for name, number in _rankings(*every).items() if name != "rankings"}


def _surprise(scores: Doubles, held: int) -> dict[str, float]:
    """Return the negative log probability of an item among all, if scores are log probabilities up to a constant."""
    highest = scores.max()
    return {"surprise": float(highest + np.log(np.exp(scores - highest).sum()) - scores[held])}


def _whole(name: str) -> str:
    return f"popular_whole_{name.removeprefix('popular_')}" if name.startswith("popular_") else f"whole_{name}"


def _errors(values: Doubles, scores: Doubles, by_biases: Doubles) -> dict[str, float]:
    errors, simpler = scores - values, by_biases - values
    return {
        "predictions": float(values.size),
        "squared": float((errors * errors).sum()),
        "absolute": float(np.abs(errors).sum()),
        "above": float(np.maximum(values, 0).sum()),
        "below": float(np.maximum(-values, 0).sum()),
        "spread": float((values * values).sum()),
        "biases": float((simpler * simpler).sum()),
    }


def _rankings(by_model: Ranking, by_bias: Ranking) -> dict[str, float]:
    return {
        "rankings": 1.0,
        "hits": by_model.hit,
        "recall": by_model.recall,
        "ndcg": by_model.ndcg,
        "reciprocal": by_model.reciprocal,
        "popular_hits": by_bias.hit,
        "popular_recall": by_bias.recall,
        "popular_ndcg": by_bias.ndcg,
        "popular_reciprocal": by_bias.reciprocal,
    }


def _differences(numbers: dict[str, float], capacity: int) -> dict[str, float]:
    """Return the squares and products for the variance over devices."""
    count, squared = numbers.get("predictions", 0.0), numbers.get("squared", 0.0)
    return {
        "predictions_2": count * count / capacity,
        "both": count * squared / capacity,
        "squared_2": squared * squared / capacity,
        **{f"{name}_2": numbers[name] ** 2 for name in _SPREAD if name in numbers},
    }
