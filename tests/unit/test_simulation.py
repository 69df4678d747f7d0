"""The simulation: who takes part and with what, two sums that agree, and a control that can be computed by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import MatrixFactorisation, Ratings
from secemb_shared.messages import RoundSpec
from secemb_tools.datasets import RatingSet, Split, split
from secemb_tools.simulation import summing
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.population import Counts, Population
from secemb_tools.simulation.recipes import Recipe, recipe_for
from secemb_tools.simulation.summing import Participant, add_plainly, add_privately
from secemb_tools.simulation.training import Training

SMALL = Recipe(model="mf", rounds=3, cohort=8, capacity=12)


def data(people: int = 20) -> Split:
    return split(made_up_ratings(people=people, items=40, count=20 * people), seed=1)


def population(people: int, *, cohort: int, seed: int = 1) -> Population:
    return Population(data(people).train, lambda _: MatrixFactorisation(dimension=4), cohort=cohort, seed=seed)


def after(rounds: int, recipe: Recipe, add: summing.Sum, *, seed: int = 1) -> Training:
    training = Training(recipe, data(), seed=seed, add=add)
    for _ in range(rounds):
        training.step()
    return training


def test_everybody_takes_part_once_in_an_epoch_and_in_another_order_in_the_next() -> None:
    devices = population(20, cohort=8)
    epochs = [np.concatenate([devices.people_of(number) for number in range(first, first + 3)]) for first in (0, 3)]
    assert [devices.people_of(number).size for number in range(6)] == [8, 8, 4, 8, 8, 4]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_one_person_left_over_waits_for_the_next_epoch() -> None:
    devices = population(17, cohort=8)
    assert [devices.people_of(number).size for number in range(4)] == [8, 8, 8, 8]


def test_what_takes_part_is_drawn_afresh_each_round_and_is_the_same_for_the_same_seed() -> None:
    one, same, other = (population(20, cohort=8, seed=seed) for seed in (1, 1, 2))
    busy = max(range(20), key=lambda person: one.ratings_of(person, number=0, capacity=40).items.size)
    drawn = [
        devices.ratings_of(busy, number=number, capacity=10)
        for devices, number in ((one, 0), (same, 0), (one, 1), (other, 0))
    ]
    assert all(ratings.items.size == 10 and (np.diff(ratings.items) > 0).all() for ratings in drawn)
    assert np.array_equal(drawn[0].items, drawn[1].items)
    assert not np.array_equal(drawn[0].items, drawn[2].items)
    assert not np.array_equal(drawn[0].items, drawn[3].items)


def test_a_drawn_rating_keeps_its_value() -> None:
    devices, train = population(20, cohort=8), data().train
    known = {(int(p), int(i)): float(v) for p, i, v in zip(train.people, train.items, train.values, strict=True)}
    for person in range(20):
        drawn = devices.ratings_of(person, number=3, capacity=10)
        assert all(known[person, int(i)] == float(v) for i, v in zip(drawn.items, drawn.values, strict=True))


@pytest.mark.parametrize("model", ["mf", "ncf", "fm"])
def test_the_private_sum_is_the_plain_one_to_the_last_bit(model: str) -> None:
    recipe = Recipe(model=model, rounds=4, cohort=8, capacity=12)
    plain, private = (after(4, recipe, add) for add in (add_plainly, add_privately))
    assert np.array_equal(plain.model.rows, private.model.rows)
    assert np.array_equal(plain.model.dense, private.model.dense)
    assert plain.model.version == 4
    assert plain.rmse() == private.rmse()


def test_one_step_too_much_in_one_sum_is_noticed() -> None:
    def add_wrongly(round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
        total = add_plainly(round_, model, participants)
        total.rows[0, 0] += 1
        return total

    assert after(1, SMALL, add_plainly).model.digest != after(1, SMALL, add_wrongly).model.digest


def test_one_session_that_is_lost_is_noticed() -> None:
    def forget_one(round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
        return add_privately(round_, model, participants[1:])

    assert after(1, SMALL, add_plainly).model.digest != after(1, SMALL, forget_one).model.digest


def test_another_seed_is_another_run() -> None:
    assert after(2, SMALL, add_plainly).rmse() != after(2, SMALL, add_plainly, seed=2).rmse()


def test_rows_that_find_no_place_are_left_out_of_training() -> None:
    ratings = Ratings(np.array([2, 5, 9]), np.array([1, 2, 3], np.float32))
    kept = summing._those_with_a_place(ratings, np.array([2, 9]))
    assert kept.items.tolist() == [2, 9]
    assert kept.values.tolist() == [1, 3]


def test_a_device_that_cannot_learn_uploads_zeros_and_keeps_its_private_part() -> None:
    device, counts = population(20, cohort=8).devices[0], Counts()
    task = Recipe(model="mf", rounds=1, cohort=8, capacity=12).task(data().train, seed=1)
    ratings = Ratings(np.array([1, 2]), np.array([np.nan, 3], np.float32))
    before = device.private
    rows, dense = device.train(task, np.zeros(0, np.float32), counts, ratings, np.ones((2, 5), np.float32))
    assert not rows.any()
    assert rows.shape == (2, 5)
    assert dense.size == 0
    assert device.private is before
    assert (counts.sessions, counts.failed, counts.clipped) == (1, 1, 0)


def test_an_update_beyond_the_bound_is_cut_and_counted() -> None:
    device, counts = population(20, cohort=8).devices[0], Counts()
    task = Recipe(model="mf", rounds=1, cohort=8, capacity=12).task(data().train, seed=1)
    ratings = Ratings(np.array([1, 2]), np.array([1e4, 3], np.float32))
    rows, _ = device.train(task, np.zeros(0, np.float32), counts, ratings, np.ones((2, 5), np.float32))
    assert np.abs(rows).max() == task.bound / 2**task.fraction_bits
    assert (counts.failed, counts.clipped) == (0, 1)


def test_the_error_is_that_of_predictions_cut_to_the_scale() -> None:
    training = after(0, SMALL, add_plainly)
    test = data().test
    assert training.rmse() == pytest.approx(float(np.sqrt(np.mean((3.0 - test.values) ** 2))), abs=0.01)


def one_rating_each(values: list[float]) -> RatingSet:
    count = len(values)
    return RatingSet(
        name="by hand",
        people=np.arange(count),
        items=np.zeros(count, np.int64),
        values=np.array(values, np.float32),
        user_features=np.zeros((count, 0), np.uint8),
        item_features=np.zeros((1, 0), np.uint8),
    )


def test_the_control_predicts_the_mean_where_everybody_agrees() -> None:
    same = one_rating_each([4, 4, 4])
    assert bias_only_rmse(Split(train=same, test=same)) == pytest.approx(0)
    assert bias_only_rmse(Split(train=same, test=one_rating_each([5, 5, 5]))) == pytest.approx(1)


def test_the_control_shrinks_the_bias_of_somebody_with_few_ratings() -> None:
    """With one rating and a ridge of 3 a person's bias is a quarter of what is left."""
    given = one_rating_each([2, 4])
    assert bias_only_rmse(Split(train=given, test=given)) == pytest.approx(0.75)


def test_the_control_learns_less_than_vectors_do() -> None:
    parts = split(made_up_ratings(people=100, items=80, count=4000), seed=1)
    training = Training(Recipe(model="mf", rounds=80, cohort=50, capacity=40), parts, seed=1, add=add_plainly)
    for _ in range(80):
        training.step()
    assert training.rmse() < bias_only_rmse(parts) - 0.05


def test_a_bar_counts_only_after_the_rounds_it_is_for() -> None:
    assert recipe_for("mf", "ML100K").bar == 0.915
    assert recipe_for("mf", "ML100K").rounds == 1400
    assert recipe_for("mf", "ML100K", 2000).bar == 0.915
    assert recipe_for("mf", "ML100K", 100).bar == 0.944
    assert recipe_for("mf", "ML100K", 99).bar is None
    assert recipe_for("fm", "ML100K", 100).bar is None
    assert recipe_for("deepfm", "ML100K", 100).rounds == 100
    with pytest.raises(KeyError):
        recipe_for("svd", "ML100K")
