"""The report on quality from end to end: training is worth it, private training loses nothing, and a miss fails.

One test runs on MovieLens 100K, in the directory that ML100K names or else beside the project; the set may not travel
with the project, so without it ratings of the same shape are made up.
"""

import json
import os
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.e2e.commands import check_shape, read_json
from tests.unit.made_up_ratings import made_up_ratings, write_as_movielens
from typer.testing import CliRunner, Result

from secemb_lab.__main__ import app
from secemb_lab.report import quality, quality_goals
from secemb_lab.report.central_bpr import CentralBpr
from secemb_lab.report.quality_data import Source
from secemb_lab.report.quality_rankings import RankingCase, measure_ranking_case
from secemb_lab.report.quality_ratings import Comparison, RatingCase, measure_case, measured_after
from secemb_sdk.round.session import DeviceSession
from secemb_shared.kernel import native_available
from secemb_tools.datasets import RatingSet, Split, read_movielens, split, split_per_user
from secemb_tools.simulation.accuracy import measure_ranking
from secemb_tools.simulation.baseline import bias_only_rmse, measure_baselines
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PRIVATE
from secemb_tools.simulation.scenario import with_scale
from secemb_tools.simulation.world import world_for

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "ml-100k"


def movielens() -> Path | None:
    """Return where MovieLens 100K is; a directory that was named must be there."""
    if named := os.environ.get("ML100K"):
        return Path(named)
    return BESIDE if BESIDE.is_dir() else None


def of_the_size_of_movielens() -> tuple[Split, float]:
    """Return a split, and the largest error that is good enough after thirty rounds.

    On MovieLens the error is 0.011 below that of biases then, and 0.028 after a hundred rounds (`make quality`).
    """
    path = movielens()
    ratings = made_up_ratings(people=943, items=1682, count=100_000) if path is None else read_movielens(path)
    data = split(ratings, seed=1)
    return data, bias_only_rmse(data) - (0.15 if path is None else 0.009)


def report(out: Path, *words: object) -> Result:
    return CliRunner().invoke(app, ["quality", "--quick", "--out", str(out), *map(str, words)])


@pytest.mark.skipif(not native_available(), reason="takes minutes without the C kernel")
def test_private_matrix_factorisation_learns_more_than_biases() -> None:
    data, bar = of_the_size_of_movielens()
    recipe = with_scale(Recipe.by_rule(data.train, rounds=30, cohort=100), data.train, seed=1)
    engine = Engine(world_for(recipe, data.train, seed=1), way=PRIVATE)
    for _ in range(recipe.rounds):
        engine.step()
    assert engine.rmse(data.test) <= bar
    assert engine.counts.clipped == engine.counts.failed == 0


@pytest.mark.parametrize(("model", "rounds"), [("mf", 40), ("ncf", 10), ("fm", 10), ("deepfm", 3)])
def test_a_private_run_is_the_plain_one_bit_for_bit(model: str, rounds: int) -> None:
    found = measure_case(RatingCase(source=Source(), model=model, rounds=rounds, cohort=10, seed=1))
    assert found.same_bits
    assert found.private_rounds == found.rounds == rounds
    assert found.private_rmse == found.rmse.value == found.curve[-1][1]
    assert found.clipped == found.failed == 0
    assert found.cpu_seconds > 0 < found.private_cpu_seconds


@pytest.mark.parametrize("loss", ["bpr", "softmax"])
@pytest.mark.parametrize("model", ["mf", "ncf", "fm"])
def test_rankings_by_a_private_run_are_those_of_the_plain_one(model: str, loss: str) -> None:
    source = Source(without_ratings=True)
    found = measure_ranking_case(RankingCase(source=source, split="per-user", model=model, loss=loss, rounds=6, seed=1))
    assert found.same_bits
    assert found.private_rounds == 6
    assert [done for done, _ in found.curve] == [5, 6]


def test_a_private_run_may_end_earlier() -> None:
    found = measure_case(RatingCase(source=Source(), rounds=4, cohort=10, seed=1, private_rounds=2))
    assert (found.private_rounds, found.private_rmse, found.same_bits) == (2, None, True)


def test_one_round_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number of one device in one round, too large by the smallest step that the ring has."""
    write, altered_in = DeviceSession.write, list[int]()

    def altered(session: DeviceSession, items, updates, dense=None):  # type: ignore[no-untyped-def]
        if session.round.number == 1 and not altered_in and updates.size:
            altered_in.append(session.round.number)
            updates = updates.copy()
            updates[0, 0] += 2.0**-session.round.task.fraction_bits
        return write(session, items, updates, dense)

    monkeypatch.setattr(DeviceSession, "write", altered)
    data = split(made_up_ratings(people=20, items=40, count=400), seed=1)
    recipe = Recipe(model="mf", rounds=3, cohort=8, capacity=12)
    both = Comparison(world_for(recipe, data.train, seed=1), rounds=3, private_rounds=None)
    assert [(both.step(), both.same_bits) for _ in range(3)] == [(1, True), (2, False), (3, False)]


def test_a_curve_has_points_where_it_falls_and_one_at_the_end() -> None:
    points = [done for done in range(1, 213) if measured_after(done, 212)]
    assert points == [*range(5, 51, 5), 75, 100, 150, 200, 212]


def test_a_short_run_measures_every_part_and_writes_its_files(tmp_path: Path) -> None:
    out = tmp_path / "here" / "quality.json"
    done = report(out, "--json")
    assert done.exit_code == 0, done.output
    found = read_json(done.stdout)
    check_shape("quality", found)
    assert json.loads(out.read_text()) == found
    assert {one["model"] for one in found["models"]} == {"mf", "ncf", "fm", "deepfm"}
    assert {(one["model"], one["loss"]) for one in found["rankings"]} >= {("mf", "bpr"), ("mf", "softmax")}
    assert len(found["baselines"]) == 2
    assert all(one["same_bits"] for part in ("ratings", "models", "rankings") for one in found[part])
    assert all(goal["reached"] for goal in found["goals"])
    assert "12 of 12" in done.stderr
    assert "| made up |" in out.with_suffix(".md").read_text()
    for picture in out.parent.glob("*.svg"):
        ElementTree.parse(picture)


def test_the_command_fails_when_a_goal_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_goals, "RANKING_BARS", {"made up": (0.99, 0.99)})
    done = report(tmp_path / "quality.json", "--parts", "rankings")
    assert done.exit_code == 1
    assert done.stdout.count("**MISSED**") == 2
    assert done.stdout == (tmp_path / "quality.md").read_text()


def test_parts_that_are_not_measured_stay_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, one_model = tmp_path / "quality.json", lambda _: iter([RatingCase(source=Source(), rounds=2, seed=1)])
    monkeypatch.setattr(quality, "_quick_models", one_model)
    monkeypatch.setattr(quality, "_quick_ratings", one_model)
    assert report(out, "--parts", "models").exit_code == 0
    before = json.loads(out.read_text())
    assert (len(before["ratings"]), len(before["models"])) == (0, 1)
    report(out, "--parts", "ratings")
    after = json.loads(out.read_text())
    assert after["models"] == before["models"]
    assert len(after["ratings"]) == 1


def test_several_processes_find_the_same_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    cases = [RatingCase(source=Source(), seed=seed, rounds=2, cohort=10, private_rounds=1) for seed in (3, 1, 2)]
    monkeypatch.setattr(quality, "_quick_ratings", lambda _: iter(cases))
    for processes in (1, 2):
        out = tmp_path / f"{processes}.json"
        report(out, "--parts", "ratings", "--processes", processes)
        found.append([(one["seed"], one["sample"], one["curve"]) for one in json.loads(out.read_text())["ratings"]])
    assert [seed for seed, *_ in found[0]] == [3, 1, 2]
    assert found[0] == found[1]


def test_a_report_that_is_cut_short_has_something_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(case: quality.Case) -> quality.Found:
        if isinstance(case, RatingCase) and case.model == "ncf":
            raise KeyboardInterrupt
        return measure_case(RatingCase(source=Source(), rounds=2, seed=1))

    monkeypatch.setattr(quality, "measure", measure)
    out = tmp_path / "quality.json"
    assert report(out, "--parts", "models").exit_code != 0
    assert [one["model"] for one in json.loads(out.read_text())["models"]] == ["mf"]
    assert out.with_suffix(".md").is_file()


def test_each_set_in_a_folder_is_measured(tmp_path: Path) -> None:
    (tmp_path / "ml-100k").mkdir()
    write_as_movielens(made_up_ratings(people=20, items=40, count=400), tmp_path / "ml-100k")
    (tmp_path / "gowalla").mkdir()
    jobs = quality.jobs_of(quality.QualityOptions(data=tmp_path))
    ratings = [job.case for job in jobs if job.part == "ratings"]
    assert len(ratings) == 5 * 3  # the set and four samples, three seeds
    models = [job.case for job in jobs if job.part == "models" and isinstance(job.case, RatingCase)]
    assert {(one.model, one.rounds) for one in models} == {("mf", 100), ("ncf", 150), ("fm", 350), ("deepfm", 125)}
    rankings = [job.case for job in jobs if isinstance(job.case, RankingCase)]
    assert {one.private_rounds for one in rankings if one.split == "given"} == {50, 10}
    assert {(one.model, one.loss) for one in rankings if one.split == "per-user"} == set(
        product(("mf", "fm", "ncf"), ("bpr", "softmax"))
    )


def test_a_folder_without_sets_is_refused_with_where_to_get_them(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["quality", "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "secemb data fetch ml-100k" in " ".join(done.output.replace("│", " ").split())


def test_a_part_that_is_not_known_is_refused(tmp_path: Path) -> None:
    done = report(tmp_path / "quality.json", "--parts", "ratings,speed")
    assert done.exit_code == 2
    assert "choose from ratings, models, rankings" in " ".join(done.output.replace("│", " ").split())


def two_camps() -> RatingSet:
    """Return choices of people who choose from their own half of the items only; no item is popular."""
    rng = np.random.default_rng(1)
    items = [20 * (person % 2) + rng.permutation(20)[:12] for person in range(100)]
    people = np.repeat(np.arange(100), 12)
    return RatingSet(
        name="camps",
        people=people,
        items=np.concatenate(items),
        values=np.ones(people.size, np.float32),
        user_features=np.zeros((100, 0), np.uint8),
        item_features=np.zeros((40, 0), np.uint8),
        implicit=True,
    )


def test_the_central_model_learns_what_popularity_cannot_know() -> None:
    data = split_per_user(two_camps(), seed=1)
    found = measure_ranking(CentralBpr(data.train, epochs=20, seed=1).scores_of, data, k=10)
    assert found.recall.value > 0.9  # each camp has 10 items left, of 30
    assert measure_baselines(data, k=10).popularity.recall.value < 0.6
