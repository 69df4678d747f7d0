"""The simulation: who takes part and with what, two sums that agree, and a control that can be computed by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import PrivateState
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.measures import Mark, find_stall
from secemb_tools import simulate
from secemb_tools.datasets import RatingSet, Split, split
from secemb_tools.simulation import rounds
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE, Chosen, Outcome, Part, PlainSession, take_part
from secemb_tools.simulation.world import InTurn, World, world_for

SMALL = Recipe(model="mf", rounds=3, cohort=8, capacity=12)


def data(people: int = 20) -> Split:
    return split(made_up_ratings(people=people, items=40, count=20 * people), seed=1)


def in_turn(people: int, *, cohort: int) -> InTurn:
    return InTurn(people=people, cohort=cohort, smallest=2, seed=1)


def after(rounds_: int, recipe: Recipe, way: str, *, seed: int = 1) -> Engine:
    engine = Engine(world_for(recipe, data().train, seed=seed), way=way)
    for _ in range(rounds_):
        engine.step()
    return engine


def test_everybody_takes_part_once_in_an_epoch_and_in_another_order_in_the_next() -> None:
    turns = in_turn(20, cohort=8)
    epochs = [np.concatenate([turns.people_of(number) for number in range(first, first + 3)]) for first in (0, 3)]
    assert [turns.people_of(number).size for number in range(6)] == [8, 8, 4, 8, 8, 4]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_one_person_left_over_waits_for_the_next_epoch() -> None:
    turns = in_turn(17, cohort=8)
    assert [turns.people_of(number).size for number in range(4)] == [8, 8, 8, 8]


def items_of(world: World, person: int, *, number: int) -> list[int]:
    """Return what a person's device brings to a round of the plain run."""
    round_ = RoundSpec(task=world.task, number=number, model_version=0, model_digest=bytes(32))
    random_bytes = world.random_bytes("session", number, person)
    table = np.zeros((world.task.items, world.task.row_width), np.float32)
    selection = Devices(world)[person].select(round_, random_bytes)
    total = Share.empty(round_)
    session = PlainSession(round_, selection.items, table=table, total=total, random_bytes=random_bytes)
    items: list[int] = session.read_rows()[0].tolist()
    return items


def test_what_takes_part_is_drawn_afresh_each_round_and_is_the_same_for_the_same_seed() -> None:
    one, same, other = (world_for(SMALL, data().train, seed=seed) for seed in (1, 1, 2))
    busy = max(range(20), key=lambda person: len(one.ratings_of(person)))
    assert len(one.ratings_of(busy)) > 12
    drawn = [items_of(world, busy, number=number) for world, number in ((one, 0), (same, 0), (one, 1), (other, 0))]
    assert all(len(set(items)) == 12 and set(items) <= set(one.ratings_of(busy)) for items in drawn)
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) != sorted(drawn[2])
    assert sorted(drawn[0]) != sorted(drawn[3])


def test_a_rating_that_takes_part_keeps_its_value() -> None:
    world, train = world_for(SMALL, data().train, seed=1), data().train
    known = {(int(p), int(i)): float(v) for p, i, v in zip(train.people, train.items, train.values, strict=True)}
    round_ = RoundSpec(task=world.task, number=3, model_version=0, model_digest=bytes(32))
    for person in range(20):
        selection = Devices(world)[person].select(round_, world.random_bytes("session", 3, person))
        brought = selection.ratings_of(np.array(items_of(world, person, number=3)))
        assert all(known[person, int(i)] == float(v) for i, v in zip(brought.items, brought.values, strict=True))


@pytest.mark.parametrize("model", ["mf", "ncf", "fm"])
def test_the_private_sum_is_the_plain_one_to_the_last_bit(model: str) -> None:
    """Some people have more ratings than take part: both runs must draw the same."""
    recipe = Recipe(model=model, rounds=4, cohort=8, capacity=12)
    plain, private = (after(4, recipe, way) for way in (PLAIN, PRIVATE))
    assert np.array_equal(plain.model.rows, private.model.rows)
    assert np.array_equal(plain.model.dense, private.model.dense)
    assert plain.model.version == 4
    assert plain.rmse(data().test) == private.rmse(data().test)


def test_one_step_too_much_in_one_sum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = after(2, SMALL, PLAIN).model.digest  # the first step of Adam knows signs only

    def add_wrongly(round_: RoundSpec, model: Model, chosen: Chosen) -> Outcome:
        outcome = rounds.add_plainly(round_, model, chosen)
        outcome.shares[0].rows[0, 0] += 1
        return outcome

    monkeypatch.setitem(rounds.WAYS, PLAIN, add_wrongly)
    assert after(2, SMALL, PLAIN).model.digest != before


def test_one_session_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_one(round_: RoundSpec, model: Model, chosen: Sequence[Any]) -> Outcome:
        return rounds.add_privately(round_, model, chosen[1:])

    monkeypatch.setitem(rounds.WAYS, PRIVATE, forget_one)
    assert after(1, SMALL, PLAIN).model.digest != after(1, SMALL, PRIVATE).model.digest


def test_another_seed_is_another_run() -> None:
    test = data().test
    assert after(2, SMALL, PLAIN).rmse(test) != after(2, SMALL, PLAIN, seed=2).rmse(test)


def one_device(value: float, way: str) -> tuple[Outcome, PrivateState, float]:
    """Return what comes of a device with one rating of this value and another of 3, and the task's bound."""
    ratings = RatingSet(
        name="two ratings",
        people=np.array([0, 0, 1]),
        items=np.array([1, 2, 2]),
        values=np.array([value, 3, 3], np.float32),
        user_features=np.zeros((2, 0), np.uint8),
        item_features=np.zeros((20, 0), np.uint8),
    )
    world = world_for(Recipe(model="mf", rounds=1, cohort=8, capacity=4, dimension=4), ratings, seed=1)
    engine = Engine(world, way=way)
    before = PrivateState.begin(world.model_of(0), np.random.default_rng())
    found = take_part(Devices(world), Part(way=way, number=0, model=engine.model, people={0: before}))
    return found, before, world.task.norm_bound


@pytest.mark.parametrize("way", [PLAIN, PRIVATE])
def test_a_device_that_cannot_learn_uploads_zeros_and_keeps_its_private_part(way: str) -> None:
    found, _, _ = one_device(np.nan, way)
    total = sum(found.shares[1:], start=found.shares[0])
    assert not total.rows.any()
    assert found.moved == {}
    assert (found.counts.sessions, found.counts.failed, found.counts.clipped) == (1, 1, 0)


@pytest.mark.parametrize("way", [PLAIN, PRIVATE])
def test_an_update_beyond_the_bound_is_cut_and_counted(way: str) -> None:
    found, before, bound = one_device(1e4, way)
    total = sum(found.shares[1:], start=found.shares[0])
    assert 0.99 * bound <= np.linalg.norm(total.rows.view(np.int32).astype(float)) <= bound
    assert found.moved[0].steps == before.steps + 1
    assert (found.counts.failed, found.counts.clipped) == (0, 1)
    assert one_device(4.0, way)[0].counts.clipped == 0


def test_the_error_is_that_of_predictions_cut_to_the_scale() -> None:
    test = data().test
    error = after(0, SMALL, PLAIN).rmse(test)
    world = world_for(SMALL, data().train, seed=1)
    # Before the first round only the person's bias says anything: the mean of the ratings, held by its penalty.
    own = [world.ratings_of(person) for person in range(test.person_count)]
    means = np.array([sum(one.values()) / (len(one) + SMALL.bias_penalty) for one in own])
    assert error == pytest.approx(float(np.sqrt(np.mean((means[test.people] - test.values) ** 2))), abs=0.05)


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
    recipe = Recipe(model="mf", rounds=80, cohort=50, capacity=40)
    engine = Engine(world_for(recipe, parts.train, seed=1), way=PLAIN)
    for _ in range(80):
        engine.step()
    assert engine.rmse(parts.test) < bias_only_rmse(parts) - 0.05


def evaluated(*numbers: int, **window: float) -> Row:
    return Row(
        round=numbers[-1], kind="evaluate", sessions=8, version=1, digest="", window={"rounds": numbers, **window}
    )


def test_progress_is_judged_by_a_whole_window_and_not_by_one_evaluation() -> None:
    assert evaluated(5, rmse=0.1, mean_rmse=1.0).mark is None
    assert evaluated(5, 11, 17, 23, rmse=0.1, mean_rmse=1.0).mark is None
    assert evaluated(5, 11, 17, 23, 29, rmse=0.9, mean_rmse=1.0).mark == Mark(0.9)
    assert evaluated(5, 11, 17, 23, 29, ndcg=0.25).mark == Mark(-0.25)
    found = evaluated(5, 11, 17, 23, 29, rmse=0.9, rmse_low=0.8, rmse_high=1.0, mean_rmse=2.0).mark
    assert found == Mark(0.45, 0.4, 0.5)
    assert evaluated(5, 11, 17, 23, 29, ndcg=0.25, ndcg_low=0.2, ndcg_high=0.5).mark == Mark(-0.25, -0.5, -0.2)


def test_biases_that_improve_with_the_model_do_not_hide_its_progress() -> None:
    before = evaluated(1, 2, 3, 4, 5, rmse=0.95, mean_rmse=1.1, biases_rmse=1.05).mark
    after_ = evaluated(2, 3, 4, 5, 6, rmse=0.90, mean_rmse=1.1, biases_rmse=0.93).mark
    assert before is not None
    assert after_ is not None
    assert after_.value < before.value


def test_training_stalls_where_the_best_is_old_and_while_rates_fall_only_beyond_doubt() -> None:
    marks = [Mark(value, value - 0.02, value + 0.02) for value in (0.99, 0.92, 0.93, 0.94, 0.95)]
    assert find_stall(marks, patience=3, settles=False) == 1
    assert find_stall(marks, patience=4, settles=False) is None
    assert find_stall(marks, patience=0, settles=False) is None
    assert find_stall(marks, patience=3, settles=True) is None, "0.93 may be the truth of both"
    assert find_stall([*marks, Mark(0.97, 0.95, 0.99)], patience=3, settles=True) == 1
    assert find_stall([*marks, Mark(0.97)], patience=3, settles=True) is None, "one device has no interval"
    assert find_stall([], patience=3, settles=False) is None


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": value} for value in ("x", "0.05", float("nan"), -1.0, True, [1])),
        *(
            {name: "x"}
            for name in ("rounds", "cohort", "capacity", "dimension", "epochs", "penalty", "centre", "lowest")
        ),
        *(
            {name: "x"}
            for name in ("devices", "items", "seed", "evaluate_every", "patience", "save_every", "processes")
        ),
        *({"epsilon": 1.0} | {name: "x"} for name in ("epsilon", "delta", "clip", "unit")),
        *({name: value} for name in ("loss", "optimiser", "schedule") for value in ("x", 3)),
        *({"rounds": 2.5}, {"patience": 1.5}),
    ],
    ids=str,
)
def test_a_setting_of_the_wrong_kind_is_refused_by_name(wrong: dict[str, Any]) -> None:
    options: dict[str, Any] = {"devices": 20, "cohort": 8, "rounds": 1, "items": 100}
    with pytest.raises(SecEmbError, match=list(wrong)[-1]):
        simulate(**options | wrong)


def test_numbers_of_numpy_and_whole_rates_are_numbers() -> None:
    found = Recipe.by_rule(data().train, rate=1, penalty=np.float32(0.5), rounds=np.int64(7), centre=-2)
    assert (found.rate, found.penalty, found.rounds, found.centre) == (1.0, 0.5, 7, -2.0)
    assert [type(value) for value in (found.rate, found.penalty, found.rounds)] == [float, float, int]


FILE = """
unit = "record"
delta = 1e-5
[train]
clip = 2
epsilon = 4
"""


def test_a_privacy_file_of_a_task_is_the_budget_of_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text(FILE)
    options: dict[str, Any] = {"devices": 20, "cohort": 8, "rounds": 1, "items": 100}
    by_file = simulate(**options, privacy=tmp_path / "privacy.toml")
    by_numbers = simulate(**options, unit="record", delta=1e-5, clip=2.0, epsilon=4.0)
    assert by_file.scenario == by_numbers.scenario
    assert by_file.table() == by_numbers.table()


@pytest.mark.parametrize(
    ("text", "numbers", "words"),
    [
        (FILE, {"epsilon": 3.0}, "the file or these"),
        (FILE, {"unit": "user"}, "the file or these"),
        (FILE + "multiplier = 2", {}, "omit train.multiplier"),
        (FILE + "dense_clip = 2", {}, "omit train.dense_clip"),
        (FILE.replace("delta", "gamma"), {}, "delta: field required"),
        (None, {"clip": 2.0}, "clip is part of a privacy budget"),
    ],
)
def test_a_budget_is_given_once_and_whole(
    text: str | None, numbers: dict[str, Any], words: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "privacy.toml").write_text(text)
        numbers = numbers | {"privacy": tmp_path / "privacy.toml"}
    with pytest.raises(SecEmbError, match=words):
        simulate(devices=20, cohort=8, rounds=1, items=100, **numbers)


def test_data_that_is_no_table_is_refused() -> None:
    with pytest.raises(SecEmbError, match="polars or pandas frame"):
        simulate(data=5)
