"""The sum of a round is the same on every machine: its digest is stored here.

A whole run is not compared with a stored one. How a processor adds floats up (the order within a dot product, a product
that is not rounded before it is added) differs from machine to machine in the last bit, and so do logarithms and
powers. Sums in the ring are exact. Here the first round of matrix factorisation begins with eighths, whole ratings and
a penalty of an eighth: no float in it has to be rounded, and what the ring adds up is the same everywhere.
"""

import hashlib
from functools import partial

import numpy as np
import pytest

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import Floats, MatrixFactorisation, Ratings
from secemb_shared.layout import plan
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_tools.simulation.population import Counts, Device
from secemb_tools.simulation.summing import Participant, Sum, add_plainly, add_privately

ITEMS, DIMENSION, PEOPLE, EACH = 53, 4, 8, 12
GOLDEN = "0963fecf2a47eaad2516868e764b51dcfe079b738c600c8c038e728f4d72ad95"


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


def first_sum(add: Sum, *, more: float = 0.0) -> Share:
    """Return the sum of the first round; `more` is added to one rating of one person."""
    geometry = plan(items=ITEMS, capacity=EACH, row_width=DIMENSION + 1).geometry
    task = TaskSpec(
        name="golden",
        items=ITEMS,
        row_width=DIMENSION + 1,
        dense_size=0,
        capacity=EACH,
        tables=geometry.tables,
        bins=geometry.bins,
        ring_bits=32,
        fraction_bits=16,
        bound=2**24,
        cohort=PEOPLE,
        min_cohort=2,
    )
    rows = eighths(np.arange(ITEMS * (DIMENSION + 1))).reshape(ITEMS, DIMENSION + 1)
    model = Model(task_id=task.task_id, version=0, rows=rows, dense=np.zeros(0, np.float32))
    round_ = RoundSpec(task=task, number=1, model_version=0, model_digest=model.digest)
    people = []
    for person in range(PEOPLE):
        ratings = ratings_of(person)
        ratings.values[0] += more if person == 3 else 0
        device = Device(InEighths(person), ratings, np.random.default_rng(0))
        people.append(Participant(ratings, partial(device.train, task, model.dense, Counts())))
    return add(round_, model, people)


def digest_of(total: Share) -> str:
    return hashlib.sha256(total.rows.astype("<u4").tobytes()).hexdigest()


@pytest.mark.parametrize("add", [add_plainly, add_privately])
def test_the_sum_of_the_first_round_is_the_stored_one(add: Sum) -> None:
    assert digest_of(first_sum(add)) == GOLDEN


def test_one_rating_that_is_a_little_higher_is_another_sum() -> None:
    assert digest_of(first_sum(add_plainly, more=2.0**-10)) != GOLDEN


def test_no_float_in_it_is_rounded() -> None:
    """Ratings with more bits than float32 has would be: then the stored digest would depend on the machine."""
    total = first_sum(add_plainly)
    steps = total.rows.astype("<u4").view("<i4")
    assert not (steps % 2**7).any(), "every number is a multiple of 2^-9"
    assert steps.any()
