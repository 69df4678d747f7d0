"""Baselines: simpler models on a split. A model that does not beat them has learned nothing with its vectors.

mean         the mean of the training ratings
biases       mean + bias of the person + bias of the item, fitted by ridge regression
popularity   everybody is recommended the items with the most training interactions

The final model of a run is compared with them, on everybody's held-out data. Models of texts are measured on texts
that no device has, and compared with those of `perplexity`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats
from secemb_sdk.models.interface import reads_texts
from secemb_sdk.round.measure import RIDGE
from secemb_sdk.round.selection import HoldOut
from secemb_shared.messages.measures import FIRST_PLACES, MOST_STRANGERS
from secemb_shared.messages.spec import NEXT, SQUARED
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet, Split, split_leave_last_out
from secemb_tools.simulation.accuracy import (
    Numbers,
    RankingFigures,
    RatingFigures,
    ScoresOf,
    measure_ranking,
    measure_ratings,
)
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.perplexity import measure_texts
from secemb_tools.simulation.world import World

SWEEPS = 30
AMONG_STRANGERS = f", {MOST_STRANGERS} strangers"  # suffix of a name: among this many, and not in the whole catalogue

Doubles = npt.NDArray[np.float64]
_MOST = 5000  # maximum number of people to rank for: of more, a sample is drawn
_DRAWN = 25  # purpose of a derived seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The figures of all baselines; without ratings there is only popularity."""

    mean: RatingFigures | None
    biases: RatingFigures | None
    popularity: RankingFigures

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        named = {"mean": self.mean, "biases": self.biases, "popularity": self.popularity}
        return {name: None if one is None else one.as_json() for name, one in named.items()}


def measure_baselines(data: Split, *, k: int = FIRST_PLACES, strangers: int | None = None, seed: int = 0) -> Baselines:
    """Return the figures of the baselines; strangers are those of `measure_ranking` with the same seed."""
    rated = not data.train.implicit
    popular = popularity(data.train)
    return Baselines(
        mean=measure_ratings(predict_mean(data), data) if rated else None,
        biases=measure_ratings(predict_biases(data), data) if rated else None,
        popularity=measure_ranking(
            lambda people: np.broadcast_to(popular, (people.size, popular.size)),
            data,
            k=k,
            strangers=strangers,
            seed=seed,
        ),
    )


def predict_mean(data: Split) -> Doubles:
    """Return the mean of the training ratings for each rating in the test."""
    return np.full(data.test.values.size, data.train.values.mean(dtype=np.float64))


def predict_biases(data: Split) -> Doubles:
    """Return mean + bias of the person + bias of the item for each rating in the test."""
    train, test = data.train, data.test
    mean = float(train.values.mean(dtype=np.float64))
    rest = train.values.astype(np.float64) - mean
    by_person, by_item = np.zeros(train.person_count), np.zeros(train.item_count)
    for _ in range(SWEEPS):  # each of the two is the exact minimum given the other
        by_item = _biases(train.items, rest - by_person[train.people], train.item_count)
        by_person = _biases(train.people, rest - by_item[train.items], train.person_count)
    predictions: Doubles = mean + by_person[test.people] + by_item[test.items]
    return predictions


def popularity(train: RatingSet) -> Floats:
    """Return how many training interactions each item has."""
    return np.bincount(train.items, minlength=train.item_count).astype(np.float32)


def bias_only_rmse(data: Split) -> float:
    """Return the error of the biases alone."""
    return measure_ratings(predict_biases(data), data).rmse.value


def _biases(groups: Indices, values: Doubles, count: int) -> Doubles:
    sums = np.bincount(groups, weights=values, minlength=count)
    biases: Doubles = sums / (np.bincount(groups, minlength=count) + RIDGE)
    return biases


def measure_final(engine: Engine) -> dict[str, Any] | None:
    """Return the model's figures and those of the baselines, or None if nobody has held-out data.

    Each device fits its private part to its training data. This function uses all data, which no server could.
    """
    if engine.world.ratings.unseen:
        world, model = engine.world, engine.world.models(0)
        if reads_texts(model):
            return measure_texts(world.ratings, model, engine.model.rows, engine.model.dense, seed=world.seed)
    data = split_of(engine.world)
    if not data.test.values.size:
        return None
    if engine.world.task.loss == SQUARED:
        named: dict[str, Numbers] = {"model": engine.predict(data.test)}
        named |= {"mean": predict_mean(data), "biases": predict_biases(data)}
        return {name: measure_ratings(values, data).as_json() for name, values in named.items()}
    data = Split(train=data.train, test=_some(data.test, engine.world.seed))
    popular = popularity(data.train)
    scored: dict[str, ScoresOf] = {
        "model": lambda people: score(engine, people),
        "popularity": lambda people: np.broadcast_to(popular, (people.size, popular.size)),
    }
    found = {name: measure_ranking(scores_of, data).as_json() for name, scores_of in scored.items()}
    if engine.world.task.loss == NEXT:  # the usual measure for sequence models, which flatters all of them
        found |= {
            f"{name}{AMONG_STRANGERS}": measure_ranking(scores_of, data, strangers=MOST_STRANGERS).as_json()
            for name, scores_of in scored.items()
        }
    return found


def split_of(world: World) -> Split:
    """Return everybody's training data and held-out data."""
    if world.task.loss == NEXT:
        return split_leave_last_out(world.ratings)
    ratings, held = world.ratings, np.zeros(world.ratings.values.size, dtype=np.bool_)
    for person, mine in enumerate(ratings.by_person()):
        kept = HoldOut(key=world.hold_out_key_of(person), fraction=world.hold_out)
        held[mine] = [item in kept for item in ratings.items[mine].tolist()]
    return Split(train=ratings.only(np.flatnonzero(~held)), test=ratings.only(np.flatnonzero(held)))


def score(engine: Engine, people: Indices) -> Floats:
    """Return the scores of all items for some people, a row for each."""
    rows, dense, items = engine.model.rows, engine.model.dense, np.arange(engine.world.task.items)
    found = [engine.world.models(one).scores(rows, dense, engine.private_of(one), items) for one in people.tolist()]
    return np.stack(found)


def _some(test: RatingSet, seed: int) -> RatingSet:
    """Return the held-out data of a sample of the people, if there are many."""
    people = np.unique(test.people)
    if people.size <= _MOST:
        return test
    drawn = np.random.default_rng([seed, _DRAWN]).permutation(people)[:_MOST]
    return test.only(np.flatnonzero(np.isin(test.people, drawn)))
