"""What a device measures in an evaluation, against definitions that are written out the long way."""

import math
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import cast

import numpy as np
import pytest
from tests.unit.sessions import make_task

from secemb_sdk.models import Floats, Model, PrivateState, Ratings
from secemb_sdk.models.limits import Doubles
from secemb_sdk.round.measure import Ranking, measure, rank
from secemb_sdk.round.selection import Selection
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.measures import FIRST_PLACES, SUM_NAMES, EvaluationSums
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import BPR
from secemb_shared.randomness import Indices
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

TASK = make_task(items=400, capacity=60)
NOISY = replace(
    TASK,
    privacy=Privacy(
        unit="record",
        delta="0.000001",
        train=BudgetLine(clip=2**16, multiplier="1", epsilon="1"),
        evaluate=BudgetLine(clip=20 << 16, multiplier="1", epsilon="1"),
    ),
)
NONE = np.zeros(0, np.float32)


class Scores:
    """A model that scores each item with its row's first number; the last is its bias."""

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        return np.asarray(rows[:, 0] + private.sum(), np.float32)


class SolvedScores(Scores):
    """The same with a private part that is how far the training ratings are above the rows, on average."""

    seen: Ratings | None = None

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        self.seen = ratings
        return np.array([(ratings.values - rows[:, 0]).mean()], np.float32)


def measured(
    scores: list[float],
    values: list[float],
    *,
    held: int,
    biases: list[float] | None = None,
    task: TaskSpec = TASK,
    order: Indices | None = None,
    model: Scores | None = None,
) -> EvaluationSums:
    """Return what is measured where the first `held` items are held out, and those of value NaN are strangers."""
    items = np.arange(len(scores), dtype=np.int64) * 3
    selection = Selection(
        items=items, values=np.array(values, np.float32), held_out=np.arange(items.size) < held, left_out=0
    )
    rows = np.array([scores, biases or scores], np.float32).T.reshape(items.size, 2)
    order = np.arange(items.size) if order is None else order
    private = PrivateState(values=NONE, first=NONE, second=NONE)
    numbers = measure(task, cast(Model, model or Scores()), private, selection, items[order], rows[order], NONE)
    assert (numbers >= 0).all()
    return EvaluationSums.read(numbers.tolist())


# Errors.


def test_errors_are_those_of_held_out_ratings() -> None:
    found = measured([3.0, 1.0, 9.0, 4.0], [5.0, 2.0, math.nan, 1.0], held=2)
    assert (found.predictions, found.squared, found.absolute) == (2.0, 5.0, 3.0)


def test_the_mean_of_the_held_out_ratings_and_their_spread_follow() -> None:
    values = [5.0, 2.0, 4.0, 1.0, -3.0]
    found = measured([0.0] * 5, values, held=5)
    mean = (found.above - found.below) / 5
    assert mean == pytest.approx(np.mean(values))
    assert found.spread / 5 - mean**2 == pytest.approx(np.var(values))


def test_predictions_of_the_model_and_of_the_biases_are_cut_to_the_scale() -> None:
    on_scale = replace(TASK, centre="3", spread="2", lowest="1", highest="5")  # from -1 to 1 as models see it
    found = measured([9.0, -9.0, 0.5], [1.0, -0.5, 0.0], held=3, biases=[-9.0, 9.0, 0.5], task=on_scale)
    assert (found.squared, found.absolute, found.biases) == (0 + 0.25 + 0.25, 1.0, 4 + 2.25 + 0.25)
    anywhere = measured([9.0, -9.0, 0.5], [1.0, -0.5, 0.0], held=3, biases=[-9.0, 9.0, 0.5])
    assert anywhere.squared == 64 + 8.5**2 + 0.25


def test_biases_alone_are_the_items_and_a_ridge_over_the_training_ratings() -> None:
    biases = [3.0, 4.0, 2.0, 3.5]
    found = measured([9.0] * 4, [5.0, 4.0, 3.0, 5.0], held=2, biases=biases)
    person = ((3.0 - 2.0) + (5.0 - 3.5)) / (2 + 3)
    assert found.biases == pytest.approx((3.0 + person - 5.0) ** 2 + (4.0 + person - 4.0) ** 2)
    without = measured([9.0] * 2, [5.0, 4.0], held=2, biases=biases[:2])
    assert without.biases == pytest.approx(4.0)


def test_devices_say_how_much_they_differ_unless_there_is_noise() -> None:
    scores, values = [3.0, 1.0, 0.0], [5.0, 2.0, math.nan]
    found = measured(scores, values, held=2)
    assert (found.predictions_2 * 60, found.both * 60, found.squared_2 * 60) == pytest.approx((4, 10, 25))
    assert (found.recall_2, found.ndcg_2, found.reciprocal_2) == (1.0, 1.0, 1.0)
    with_noise = measured(scores, values, held=2, task=NOISY)
    none = dict.fromkeys(("predictions_2", "both", "squared_2", "recall_2", "ndcg_2", "reciprocal_2"), 0.0)
    assert with_noise == replace(found, **none)


def test_implicit_feedback_has_no_errors() -> None:
    found = measured([1.0, 0.0], [1.0, math.nan], held=1, task=replace(TASK, loss=BPR))
    assert (found.predictions, found.squared, found.spread, found.biases) == (0.0,) * 4
    assert (found.rankings, found.hits) == (1.0, 1.0)


def test_a_model_that_has_diverged_is_measured_and_not_silent() -> None:
    found = measured([1e30, 0.0], [1.0, math.nan], held=1)
    assert found.squared == SUM_BOUND / 2**16
    SUM_RING.encode(found.numbers(), bound=SUM_BOUND)


def test_a_full_evaluation_stays_within_the_bound() -> None:
    task = replace(make_task(items=9000, capacity=4096))
    found = measured([1.0] * 2047, [5.0] * 2047, held=2047, task=task)
    assert found.squared == 16 * 2047
    assert found.squared_2 == pytest.approx((16 * 2047) ** 2 / 4096)
    assert found.numbers().max() < SUM_BOUND / 2**16


# The private part.


def test_the_private_part_is_solved_from_training_ratings_alone() -> None:
    model = SolvedScores()
    found = measured([3.0, 1.0, 9.0, 4.0, 2.0], [5.0, 2.0, math.nan, 5.0, 3.0], held=2, model=model)
    assert model.seen is not None
    assert model.seen.items.tolist() == [9, 12]
    assert found.squared == pytest.approx((4.0 - 5.0) ** 2 + (2.0 - 2.0) ** 2)


def test_without_training_ratings_the_stored_private_part_stays() -> None:
    model = SolvedScores()
    assert measured([3.0, 0.0], [5.0, math.nan], held=1, model=model).squared == 4.0
    assert model.seen is None


# Rankings.


def rank_slowly(relevant: list[float], others: list[float], k: int) -> Ranking:
    """The textbook: sort the list, go through it from the top."""
    ranked = sorted([(-score, 0) for score in others] + [(-score, 1) for score in relevant])
    gains = [kind / math.log2(place + 2) for place, (_, kind) in enumerate(ranked)]
    ideal = [1 / math.log2(place + 2) for place in range(min(k, len(relevant)))]
    hits = sum(kind for _, kind in ranked[:k])
    first = next(place for place, (_, kind) in enumerate(ranked, start=1) if kind)
    return Ranking(float(hits > 0), hits / len(relevant), sum(gains[:k]) / sum(ideal), 1 / first)


def differs(ranks: Callable[[Doubles, Doubles, int], Ranking]) -> bool:
    """Tell whether a ranking ever differs from the textbook, over random lists with many ties."""
    random = np.random.default_rng(4)
    for _ in range(300):
        relevant, others = (random.integers(0, 12, random.integers(1, 25)).astype(float) for _ in range(2))
        k = int(random.integers(1, 12))
        found, wanted = ranks(relevant, others, k), rank_slowly(relevant.tolist(), others.tolist(), k)
        if astuple(found) != pytest.approx(astuple(wanted), abs=1e-12):
            return True
    return False


def test_a_ranking_is_the_textbooks() -> None:
    assert not differs(rank)


@pytest.mark.parametrize("fault", ["ties", "ideal", "recall", "hit", "reciprocal"])
def test_a_wrong_definition_is_found(fault: str) -> None:
    def wrong(relevant: Doubles, others: Doubles, k: int) -> Ranking:
        right, size = rank(relevant, others, k), relevant.size
        match fault:
            case "ties":  # of equal scores the relevant item comes first
                return rank(relevant, others - 0.5, k)
            case "ideal":  # always of k items, however few are relevant
                best = sum(1 / math.log2(place + 2) for place in range(min(k, size)))
                return replace(right, ndcg=right.ndcg * best / sum(1 / math.log2(place + 2) for place in range(k)))
            case "recall":  # by the smaller of k and the relevant items
                return replace(right, recall=right.recall * size / min(k, size))
            case "hit":  # all of them
                return replace(right, hit=float(right.recall == 1.0))
            case "reciprocal":  # nothing beyond the first k
                return replace(right, reciprocal=right.reciprocal if right.hit else 0.0)
        return right

    assert differs(wrong)


@pytest.mark.parametrize(("place", "hit"), [(0, True), (1, True), (9, True), (10, False), (15, False)])
def test_a_hit_is_a_place_among_the_first_ten(place: int, hit: bool) -> None:
    strangers = [2.0] * place + [0.0] * (20 - place)
    found = measured([1.0, *strangers], [4.0, *[math.nan] * 20], held=1)
    gain = 1 / math.log2(place + 2) if hit else 0.0
    assert (found.rankings, found.hits, found.recall) == (1.0, float(hit), float(hit))
    assert found.ndcg == pytest.approx(gain)
    assert found.reciprocal == pytest.approx(1 / (place + 1))
    assert FIRST_PLACES == 10


def test_a_tie_is_no_advantage() -> None:
    found = measured([1.0] * 12, [4.0, *[math.nan] * 11], held=1)
    assert (found.hits, found.ndcg) == (0.0, 0.0)
    assert found.reciprocal == pytest.approx(1 / 12)


def test_the_ranking_by_biases_is_of_the_same_items() -> None:
    scores, biases = [5.0, 1.0, 2.0, 3.0], [0.0, 1.5, 1.0, 2.0]
    found = measured(scores, [4.0, 3.0, math.nan, math.nan], held=2, biases=biases)
    by_model, by_bias = rank_slowly(scores[:2], scores[2:], 10), rank_slowly(biases[:2], biases[2:], 10)
    assert (found.ndcg, found.reciprocal) == pytest.approx((by_model.ndcg, by_model.reciprocal))
    assert (found.popular_ndcg, found.popular_reciprocal) == pytest.approx((by_bias.ndcg, by_bias.reciprocal))
    assert found.popular_ndcg != found.ndcg


def test_training_items_are_not_ranked() -> None:
    found = measured([1.0, 0.0, *[9.0] * 20], [4.0, math.nan, *[5.0] * 20], held=1)
    assert (found.hits, found.reciprocal) == (1.0, 1.0)


def test_without_strangers_or_without_its_item_there_is_no_ranking() -> None:
    assert measured([1.0], [4.0], held=1).rankings == 0.0
    assert measured([1.0, 2.0], [4.0, math.nan], held=1, order=np.array([1])).rankings == 0.0
    assert measured([], [], held=0) == EvaluationSums()


# All of them.


def test_the_order_of_the_rows_does_not_change_a_bit() -> None:
    random = np.random.default_rng(8)
    scores, biases = (random.normal(3.5, 1, 40).tolist() for _ in range(2))
    values = [*random.normal(3.5, 1, 10).tolist(), *[math.nan] * 10, *random.normal(3.5, 1, 20).tolist()]
    first = measured(scores, values, held=10, biases=biases)
    for _ in range(5):
        assert measured(scores, values, held=10, biases=biases, order=random.permutation(40)) == first


def test_what_is_measured_is_silent() -> None:
    assert "4711" not in repr(EvaluationSums(squared=4711.0))


def test_numbers_keep_their_order() -> None:
    values = np.arange(len(SUM_NAMES), dtype=float)
    assert EvaluationSums.read(values.tolist()).numbers().tolist() == values.tolist()
    assert SUM_NAMES[0] == "predictions"
    assert SUM_NAMES[10] == "rankings"
