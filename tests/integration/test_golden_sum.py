"""The sum of a round is the same on every machine: its digest is stored here.

A whole run is not compared with a stored one. How a processor adds floats up (the order within a dot product, a product
that is not rounded before it is added) differs from machine to machine in the last bit, and so do logarithms and
powers. Sums in the ring are exact. Here the first round of matrix factorisation begins with eighths, whole ratings and
a penalty of an eighth: no float in it has to be rounded, and what the ring adds up is the same everywhere.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import pytest

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import Floats, MatrixFactorisation, Ratings
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.reproducible import Reproducible
from secemb_tools.simulation.rounds import PLAIN, PRIVATE, Part, take_part
from secemb_tools.simulation.world import World, world_for

ITEMS, DIMENSION, PEOPLE, EACH = 53, 4, 8, 12
GOLDEN = "c2b4b7cd078ccc9ee0bd9fe9581fd198894da548ab94291efe7497471418ed86"


class InEighths(MatrixFactorisation):
    """Matrix factorisation that begins with multiples of an eighth."""

    def __init__(self, person: int) -> None:
        super().__init__(dimension=DIMENSION, penalty=0.125)
        self._person = person

    def first_private(self, random: np.random.Generator) -> Floats:
        return eighths(self._person + np.arange(self.private_size))


def eighths(numbers: np.ndarray) -> Floats:
    """Return numbers between -1 and 1 that follow no pattern which is easy to see."""
    return ((numbers * 37 % 17 - 8) / 8).astype(np.float32)


def ratings_of(person: int) -> Ratings:
    items = np.sort(np.arange(EACH) * (person + 3) % ITEMS)
    return Ratings(items, (items * person % 5 + 1).astype(np.float32))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class GoldenWorld(World):
    """People whose models begin with eighths."""

    def model_of(self, person: int) -> Reproducible:
        return Reproducible(InEighths(person), seed=self.seed, person=person)


def golden_world(more: float) -> GoldenWorld:
    everybody = [ratings_of(person) for person in range(PEOPLE)]
    everybody[3].values[0] += more
    ratings = RatingSet(
        name="golden",
        people=np.repeat(np.arange(PEOPLE), EACH),
        items=np.concatenate([one.items for one in everybody]),
        values=np.concatenate([one.values for one in everybody]),
        user_features=np.zeros((PEOPLE, 0), np.uint8),
        item_features=np.zeros((ITEMS, 0), np.uint8),
    )
    recipe = Recipe(model="mf", rounds=1, cohort=PEOPLE, capacity=EACH, dimension=DIMENSION)
    world = world_for(recipe, ratings, seed=0)
    task = replace(world.task, norm_bound=0)  # ratings of this size are not standard ones, and would be cut
    return GoldenWorld(ratings=ratings, recipe=recipe, task=task, schedule=world.schedule, seed=0)


def first_sum(way: str, *, more: float = 0.0) -> Share:
    """Return the sum of the first round; `more` is added to one rating of one person."""
    world = golden_world(more)
    rows = eighths(np.arange(ITEMS * (DIMENSION + 1))).reshape(ITEMS, DIMENSION + 1)
    model = Model(task_id=world.task.task_id, version=0, rows=rows, dense=np.zeros(0, np.float32))
    part = Part(way=way, number=0, model=model, people=dict.fromkeys(range(PEOPLE)))
    shares = take_part(Devices(world), part).shares
    return sum(shares[1:], start=shares[0])


def digest_of(total: Share) -> str:
    return hashlib.sha256(total.rows.astype("<u4").tobytes()).hexdigest()


@pytest.mark.parametrize("way", [PLAIN, PRIVATE])
def test_the_sum_of_the_first_round_is_the_stored_one(way: str) -> None:
    assert digest_of(first_sum(way)) == GOLDEN


def test_one_rating_that_is_a_little_higher_is_another_sum() -> None:
    assert digest_of(first_sum(PLAIN, more=2.0**-10)) != GOLDEN


def test_no_float_in_it_is_rounded() -> None:
    """Ratings with more bits than float32 has would be: then the stored digest would depend on the machine."""
    total = first_sum(PLAIN)
    steps = total.rows.astype("<u4").view("<i4")
    assert not (steps % 2**7).any(), "every number is a multiple of 2^-9"
    assert steps.any()
