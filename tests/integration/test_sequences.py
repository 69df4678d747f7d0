"""Sequences in the simulation: secrecy costs no bit, the order is learned, and runs are kept and continued."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secemb_sdk.models.torch import Convolution, SelfAttention, TorchSequenceModel
from secemb_tools import simulate
from secemb_tools.datasets import read_ratings
from secemb_tools.datasets.made_up import make_events
from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.baseline import split_of
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.scenario import make_world

SMALL: dict[str, Any] = {
    "model": "sasrec",
    "devices": 24,
    "cohort": 8,
    "rounds": 5,
    "items": 120,
    "capacity": 21,
    "dimension": 4,
    "evaluate_every": 3,
    "patience": 0,
}


@pytest.mark.parametrize(
    ("model", "options"), [("sasrec", {}), ("caser", {}), ("sasrec", {"row_bits": 16, "ring_bits": 24})]
)
def test_a_private_run_is_the_plain_one_to_the_last_bit_with_dropout(model: str, options: dict[str, int]) -> None:
    settings = SMALL | {"model": model} | options
    run = simulate(**settings, compare_plain=True)
    assert run.same_as_plain is True
    assert run.engines[0].counts.failed == 0
    assert run.table() == simulate(**settings).table()
    assert run.table() != simulate(**settings | {"seed": 2}).table()


def test_all_figures_are_labelled_and_popularity_stands_beside_them() -> None:
    final = simulate(**SMALL).final
    assert final is not None
    assert {name: found["strangers"] for name, found in final.items()} == {
        "model": None,
        "popularity": None,
        "model, 100 strangers": 100,
        "popularity, 100 strangers": 100,
    }
    assert {found["people"] for found in final.values()} == {24}


@pytest.mark.parametrize(
    "model",
    [
        SelfAttention(dimension=16, length=8, blocks=1, dropout=0.0),
        Convolution(dimension=16, length=8, height=2, dropout=0.0),
    ],
    ids=["sasrec", "caser"],
)
def test_the_order_of_events_is_learned_and_popularity_does_not_know_it(model: TorchSequenceModel) -> None:
    data = make_events(people=60, items=40, most=40, seed=3)
    settings: dict[str, Any] = {"cohort": 30, "rounds": 50, "capacity": 17, "evaluate_every": 51, "way": "plain"}
    run = simulate(model=model, data=data, rate=0.03, dense_rate=0.01, bias_rate=0.02, **settings)
    assert run.final is not None
    found = {name: one["hit_rate"]["value"] for name, one in run.final.items()}
    assert found["model"] > found["popularity"] + 0.2


def test_the_last_event_of_everybody_is_held_out() -> None:
    world = make_world(**SMALL)
    data = split_of(world)
    for person in range(24):
        own = world.events_of(person).items
        assert data.test.items[data.test.people == person].tolist() == [own[-1]]
        assert sorted(data.train.items[data.train.people == person].tolist()) == sorted(own[:-1].tolist())


def test_events_take_as_many_rounds_whatever_the_fleet() -> None:
    few, many = (
        Recipe.by_rule(make_events(people=people, items=300, most=9, seed=1), model="caser") for people in (50, 9000)
    )
    assert (few.cohort, many.cohort) == (10, 100)
    assert few.rounds == many.rounds
    assert many.capacity == Convolution().room
    assert Recipe.by_rule(make_events(people=9000, items=300, most=9, seed=1)).cohort == 150


def test_a_run_that_is_cut_short_goes_on_to_the_same_end(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(row: Any) -> None:
        if row.round == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulate(**SMALL, runs=tmp_path, save_every=2, watch=stop)
    run = simulate(**SMALL, runs=tmp_path, save_every=2)
    assert run.table() == simulate(**SMALL).table()
    kept = run.load(tmp_path / run.name)
    assert kept.recommender.world.events_of(5).items.tolist() == run.recommender.world.events_of(5).items.tolist()


def test_recommendations_follow_the_last_like() -> None:
    run = simulate(**SMALL)
    one, other = (run.recommend(likes=likes, k=5) for likes in (["3", "7"], ["7", "3"]))
    assert [found.item for found in one] != [found.item for found in other]
    seen = set(run.recommender.world.events_of(2).items.tolist())
    assert not seen & {found.item for found in run.recommend(user="2", k=20)}
    assert seen & {found.item for found in run.recommend(user="2", k=120, include_rated=True)}


def test_a_file_of_pairs_is_read_in_its_order(tmp_path: Path) -> None:
    table = tmp_path / "sequences.txt"
    lines = [(user, item) for user in range(3) for item in np.random.default_rng(user).permutation(30)[:9].tolist()]
    table.write_text("".join(f"{user} {item}\n" for user, item in lines))
    world = make_world(model="sasrec", data=read_ratings(table), cohort=2, rounds=1, capacity=21)
    ids = world.ratings.catalogue.ids
    for user in range(3):
        assert [int(ids[item]) for item in world.events_of(user).items] == [item for one, item in lines if one == user]


def test_equal_times_fall_back_to_the_order_of_the_file(tmp_path: Path) -> None:
    table = tmp_path / "events.csv"
    rows = [(user, item, time) for user in (1, 2) for item, time in ((9, 5), (3, 5), (7, 1), (5, 5))]
    table.write_text("user,item,time\n" + "".join(f"{user},{item},{1000000000 + time}\n" for user, item, time in rows))
    world = make_world(model="sasrec", data=read_ratings(table), cohort=2, rounds=1, capacity=4)
    assert [world.ratings.catalogue.ids[item] for item in world.events_of(0).items] == ["7", "9", "3", "5"]


@pytest.mark.parametrize(("model", "loss"), [("sasrec", "bpr"), ("mf", "next")])
def test_a_loss_of_another_kind_of_model_is_refused(model: str, loss: str) -> None:
    with pytest.raises(ScenarioError, match="does not fit the model"):
        make_world(**SMALL | {"model": model}, loss=loss)
