"""How good a run's model is in the end: everything that everybody holds out, beside simpler models of the same."""

from typing import Any

import numpy as np

from secemb_sdk.models import Floats
from secemb_sdk.round.selection import HoldOut
from secemb_shared.messages.spec import SQUARED
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet, Split
from secemb_tools.simulation.accuracy import Numbers, measure_ranking, measure_ratings
from secemb_tools.simulation.baseline import popularity, predict_biases, predict_mean
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.world import World

_MOST = 5000  # people who are ranked for: of more, so many are drawn
_DRAWN = 25  # what a seed is used for


def measure_final(engine: Engine) -> dict[str, Any] | None:
    """Return the model's figures and those of the baselines, or None if nobody holds anything out.

    Each device fits its private part to what it trains on. This looks at everything, as no server could.
    """
    data = split_of(engine.world)
    if not data.test.values.size:
        return None
    if engine.world.task.loss == SQUARED:
        named: dict[str, Numbers] = {"model": engine.predict(data.test)}
        named |= {"mean": predict_mean(data), "biases": predict_biases(data)}
        return {name: measure_ratings(values, data).as_json() for name, values in named.items()}
    data = Split(train=data.train, test=_some(data.test, engine.world.seed))
    popular = popularity(data.train)
    return {
        "model": measure_ranking(lambda people: score(engine, people), data).as_json(),
        "popularity": measure_ranking(
            lambda people: np.broadcast_to(popular, (people.size, popular.size)), data
        ).as_json(),
    }


def split_of(world: World) -> Split:
    """Return what everybody trains on, and what everybody holds out."""
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
    """Return what some of the people hold out, if there are many."""
    people = np.unique(test.people)
    if people.size <= _MOST:
        return test
    drawn = np.random.default_rng([seed, _DRAWN]).permutation(people)[:_MOST]
    return test.only(np.flatnonzero(np.isin(test.people, drawn)))
