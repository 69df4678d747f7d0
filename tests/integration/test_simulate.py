"""The simulation for research: seeds decide everything, cutting it short changes nothing, secrecy costs no bit."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_party.storage import Model
from secemb_sdk.errors import UnknownModelError
from secemb_shared.messages import RoundSpec
from secemb_tools import simulate
from secemb_tools.errors import RunError, ScenarioError
from secemb_tools.simulation import rounds
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.scenario import make_world

SMALL: dict[str, Any] = {
    "devices": 24,
    "cohort": 8,
    "rounds": 5,  # that train: with evaluations there are seven
    "items": 80,
    "capacity": 20,
    "dimension": 4,
    "evaluate_every": 3,
}


def test_the_same_seed_gives_the_same_table_and_another_seed_another() -> None:
    one, same, other = (simulate(**SMALL, seed=seed) for seed in (1, 1, 2))
    assert one.table() == same.table()
    assert one.table() != other.table()
    assert [row["kind"] for row in one.table()] == ["train", "train", "evaluate"] * 2 + ["train"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mf", {}),
        ("ncf", {}),
        ("fm", {}),
        ("mf", {"row_bits": 16}),
        ("mf", {"ring_bits": 24}),
        ("mf", {"row_bits": 16, "ring_bits": 24}),
        ("fm", {"row_bits": 16, "ring_bits": 24}),
    ],
)
def test_a_private_run_is_the_plain_one_to_the_last_bit(model: str, options: dict[str, Any]) -> None:
    run = simulate(**SMALL | options, model=model, compare_plain=True)
    assert run.same_as_plain is True
    assert run.plain is not None
    assert run.rows[-1].version == 5
    assert run.rmse is not None


def test_one_number_too_much_in_the_private_sum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_wrongly(round_: RoundSpec, model: Model, chosen: Any) -> Any:
        outcome = rounds.add_privately(round_, model, chosen)
        if outcome.shares[0].rows.size:
            outcome.shares[0].rows[0, 0] += 1
        return outcome

    monkeypatch.setitem(rounds.WAYS, PRIVATE, add_wrongly)
    assert simulate(**SMALL, compare_plain=True).same_as_plain is False


def test_the_model_learns() -> None:
    run = simulate(devices=60, cohort=30, rounds=24, items=120, capacity=40, way=PLAIN)
    errors = [row.rmse for row in run.rows if row.rmse is not None]
    assert errors[-1] < errors[0] - 0.05


class CutOffError(Exception):
    """Somebody has pulled the plug."""


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_a_run_that_is_cut_short_goes_on_to_the_same_table(rounds: int, tmp_path: Path) -> None:
    def pull_the_plug(row: Row) -> None:
        if row.round == rounds:
            raise CutOffError

    with pytest.raises(CutOffError):
        simulate(**SMALL, compare_plain=True, runs=tmp_path, name="cut", save_every=1, watch=pull_the_plug)
    assert len(Run.load(tmp_path / "cut").rows) == rounds
    seen: list[int] = []
    run = simulate(**SMALL, compare_plain=True, runs=tmp_path, name="cut", watch=lambda row: seen.append(row.round))
    assert seen == list(range(rounds, 7))
    assert run.table() == simulate(**SMALL).table()
    assert run.same_as_plain is True
    assert Run.load(tmp_path / "cut").table() == run.table()


def test_a_run_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    first = simulate(**SMALL, runs=tmp_path)
    again = simulate(**SMALL, runs=tmp_path, watch=lambda row: pytest.fail("there is nothing left to do"))
    assert again.table() == first.table()
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_a_damaged_state_is_refused_with_the_way_out(tmp_path: Path) -> None:
    run = simulate(**SMALL, runs=tmp_path)
    state = tmp_path / run.name / "state.safetensors"
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(RunError, match="remove it"):
        simulate(**SMALL, runs=tmp_path)
    (tmp_path / run.name / "run.json").write_text("{}")
    with pytest.raises(RunError, match="contains no run"):
        simulate(**SMALL, runs=tmp_path)


def own_ratings(path: Path, *, highest: int = 5, change: int = 0) -> Path:
    """Write ratings of 6 people for 12 items, from 1 to `highest`; `change` alters one of them."""
    lines = [f"{who},{what},{1 + (who * 5 + what * 7) % highest}" for who in range(6) for what in range(12)]
    lines[3] = f"0,3,{1 + change}"
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    return path


def test_a_run_does_not_go_on_with_other_ratings(tmp_path: Path) -> None:
    def pull_the_plug(row: Row) -> None:
        if row.round == 2:
            raise CutOffError

    few: dict[str, Any] = {"data": tmp_path / "own.csv", "cohort": 2, "rounds": 4, "runs": tmp_path}
    few |= {"centre": 3.0, "spread": 1.0}
    own_ratings(few["data"])
    with pytest.raises(CutOffError):
        simulate(**few, save_every=1, watch=pull_the_plug)
    own_ratings(few["data"], change=1)
    with pytest.raises(RunError, match="saved with different ratings; restore them"):
        simulate(**few)
    own_ratings(few["data"])
    assert simulate(**few).finished


@pytest.mark.parametrize("model", ["mf", "fm"])
@pytest.mark.parametrize(("times", "plus"), [(20.0, -20.0), (0.25, -0.25), (-5.0, 15.0), (2.25, -1.25)])
def test_training_does_not_depend_on_the_scale_of_the_ratings(model: str, times: float, plus: float) -> None:
    """Stars, points from 0 to 100 or to 1, dislikes, 1 to 10: errors are on the set's own scale, all else is alike."""
    stars = made_up_ratings(people=60, items=40, count=900)
    other = replace(stars, values=(times * stars.values + plus).astype(np.float32))
    one, two = (simulate(data=data, model=model, rounds=12, cohort=12, way=PLAIN) for data in (stars, other))
    assert one.scenario.recipe.row_pull == two.scenario.recipe.row_pull
    assert one.final is not None
    assert two.final is not None
    for name in ("model", "biases", "mean"):
        in_stars, on_scale = one.final[name]["rmse"]["value"], two.final[name]["rmse"]["value"]
        assert on_scale == pytest.approx(abs(times) * in_stars, rel=0.01)
    assert two.window["rmse"] == pytest.approx(abs(times) * one.window["rmse"], rel=0.01)
    if times > 0:
        likes = [run.recommend(likes=["3", "5"], k=40) for run in (one, two)]
        scores = [{found.item: found.score for found in some} for some in likes]
        expected = [times * scores[0][item] + plus for item in scores[0]]
        assert [scores[1][item] for item in scores[0]] == pytest.approx(expected, abs=0.05 * times)


def test_a_set_says_what_its_scale_is_and_a_survey_where_ratings_lie(tmp_path: Path) -> None:
    recipe = make_world(data=own_ratings(tmp_path / "own.csv", highest=9), rounds=3).recipe
    assert (recipe.lowest, recipe.highest) == (1, 9)
    assert 4 < recipe.centre < 6
    assert 2 < recipe.spread < 3
    given = make_world(data=own_ratings(tmp_path / "own.csv"), rounds=3, centre=-1.0, spread=7.0, highest=6.0)
    assert (given.task.centre, given.task.spread, given.task.lowest, given.task.highest) == ("-1", "7", "1", "6")


def test_a_run_saves_and_loads_what_it_is(tmp_path: Path) -> None:
    run = simulate(**SMALL, compare_plain=True)
    loaded = Run.load(run.save(tmp_path))
    assert loaded.as_json() == json.loads(json.dumps(run.as_json()))
    assert run.plot().startswith("<svg")
    assert run.plot().count("<polyline") == 2


def test_everybody_trains_in_turn_and_evaluates_in_another_order() -> None:
    world = make_world(devices=24, cohort=8, rounds=9, items=80, evaluate_every=3)
    trained, evaluated = (
        [world.schedule.people_of(number).tolist() for number in numbers] for numbers in ((0, 1, 3), (2, 5, 8))
    )
    for groups in (trained, evaluated):
        assert sorted(person for group in groups for person in group) == list(range(24))
    assert trained != evaluated


def test_what_is_held_out_is_never_trained_on() -> None:
    """A device's update touches only rows of what it may train on."""
    world = make_world(devices=6, cohort=6, rounds=1, items=80, capacity=20, row_pull=0, bias_pull=0)
    running = Engine(world, way=PLAIN)
    before = running.model.rows
    running.step()
    moved = set(np.flatnonzero((running.model.rows != before).any(axis=1)).tolist())
    allowed: set[int] = set()
    devices = Devices(world)
    for person in range(6):
        held = devices[person].context.held_out()
        allowed |= {item for item in world.ratings_of(person) if item not in held}
    assert moved <= allowed
    assert allowed < {item for person in range(6) for item in world.ratings_of(person)}


def test_matrix_factorisation_needs_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import secemb_tools.demo.demo; from secemb_tools import simulate; "
    )
    program += "print(len(simulate(devices=4, cohort=2, rounds=2, items=30).rows))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"model": "svd"}, "choose one of mf"),
        ({"devices": 3, "cohort": 4}, "at most the number of devices"),
        ({"rounds": 0}, "at least 1"),
        ({"way": "sideways"}, "private, plain"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(wish: dict[str, Any], words: str) -> None:
    with pytest.raises((ScenarioError, UnknownModelError), match=words):
        simulate(**(SMALL | wish))


def test_a_cohort_of_thousands_fits_the_ring() -> None:
    world = make_world(devices=3000, cohort=3000, items=50, rounds=1, capacity=10)
    assert world.task.cohort == 3000
    assert world.task.bound * 3000 < 2**31
