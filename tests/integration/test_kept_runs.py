"""What one gets of a run afterwards: its model, recommendations with titles, and why it ended."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from tests.e2e.commands import json_of, refused, run
from tests.integration.small_runs import SMALL
from typer.testing import CliRunner

from secemb_party.accountant import Terms, epsilon
from secemb_party.errors import AccountantMissingError, WeightsError
from secemb_party.storage import Model, Shape
from secemb_party.storage.weights import read_weights
from secemb_server0.optimiser import Optimiser
from secemb_server0.reconstruct import move_model
from secemb_shared.errors import CatalogueError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.measures import Mark
from secemb_tools import simulate
from secemb_tools.cli.main import app
from secemb_tools.datasets.catalogue import read_catalogue
from secemb_tools.errors import DatasetError, RunError, ScenarioError
from secemb_tools.simulation import engine, view
from secemb_tools.simulation.comparison import compare_runs, list_runs
from secemb_tools.simulation.engine import Row
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.view import show_comparison, show_final, show_run

GROUPS = {"a": range(12), "b": range(12, 24)}  # of items; half of the people like each


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kinds of films and two kinds of people: each likes one kind and dislikes the other."""
    folder = tmp_path_factory.mktemp("films")
    random = np.random.default_rng(1)
    lines = ["user_id,movie_id,rating"]
    for person in range(40):
        kind = "ab"[person % 2]
        for item in random.choice(24, 14, replace=False).tolist():
            lines.append(f"u{person},m{item},{5 if item in GROUPS[kind] else 1}")
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    titles = [f"m{item},{'a' if item in GROUPS['a'] else 'b'} film {item}" for item in range(24)]
    (folder / "movies.csv").write_text("\n".join(["movie_id,title", *titles]) + "\n")
    return folder


@pytest.fixture(scope="module")
def kept(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run on these films, long enough to learn the two kinds."""
    runs = tmp_path_factory.mktemp("runs")
    options = {"rounds": 40, "capacity": 14, "dimension": 4, "cohort": 20, "patience": 0, "way": PLAIN}
    simulate(data=films, runs=runs, name="f", **options)  # type: ignore[arg-type]
    return runs / "f"


def test_a_kept_run_has_its_model_its_table_and_its_catalogue(kept: Path) -> None:
    found = Run.load(kept)
    assert {path.name for path in kept.iterdir()} == {
        "catalogue.csv",
        "plot.svg",
        "ratings.npz",
        "rounds.csv",
        "run.json",
        "state.safetensors",
    }
    assert found.model.digest.hex() == found.rows[-1].digest
    assert found.model.rows.shape == (24, 5)
    assert read_catalogue(kept / "catalogue.csv").title_of(3) == found.recommender.catalogue.title_of(3)
    frame = found.to_frame()
    assert frame.columns[:3] == ["round", "kind", "sessions"]
    assert frame["rmse"].drop_nulls()[-1] == found.rmse
    with (kept / "rounds.csv").open() as file:
        logged = list(csv.DictReader(file))
    assert [row["digest"] for row in logged] == frame["digest"].to_list()


@pytest.mark.parametrize(("user", "kind"), [("u2", "a"), ("u3", "b")])
def test_a_user_of_the_set_is_recommended_what_such_users_like(kept: Path, user: str, kind: str) -> None:
    found = Run.load(kept).recommend(user=user, k=4)
    assert {str(one.title)[0] for one in found} == {kind}
    assert all(one.id == f"m{one.title.split()[-1]}" for one in found if one.title is not None)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_what_a_user_has_rated_is_left_out_unless_it_is_asked_for(kept: Path) -> None:
    run = Run.load(kept)
    own = set(run.recommender.world.ratings_of(run.recommender.world.ratings.person_of("u2")))
    assert len(own) >= 10
    assert not own & {one.item for one in run.recommend(user="u2", k=24)}
    assert {one.item for one in run.recommend(user="u2", k=24, include_rated=True)} == set(range(24))


@pytest.mark.parametrize(("likes", "kind"), [(["m1", "m4", "m7"], "a"), (["m13", "m20"], "b")])
def test_liked_items_are_enough_for_recommendations(kept: Path, likes: list[str], kind: str) -> None:
    found = Run.load(kept).recommend(likes=likes, k=5)
    assert {str(one.title)[0] for one in found} == {kind}
    assert not set(likes) & {one.id for one in found}
    assert found == Run.load(kept).recommend(likes=likes, k=5), "the same likes, the same answer"


def test_unknown_names_are_refused(kept: Path) -> None:
    run = Run.load(kept)
    with pytest.raises(CatalogueError, match="no item has the id 'm99'"):
        run.recommend(likes=["m1", "m99"])
    with pytest.raises(DatasetError, match="has no user 'x'"):
        run.recommend(user="x")
    for wrong in ({}, {"user": "u1", "likes": ["m1"]}):
        with pytest.raises(RunError, match="give either a user"):
            run.recommend(**wrong)  # type: ignore[arg-type]


def test_someone_who_has_rated_everything_is_told_why_nothing_is_recommended(tmp_path: Path) -> None:
    lines = ["user,item,rating", *(f"{who},{what},{1 + (who + what) % 5}" for who in range(6) for what in range(5))]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    simulate(data=tmp_path / "own.csv", rounds=2, cohort=3, runs=tmp_path, name="own")
    told = CliRunner().invoke(app, ["run", "recommend", "own", "--user", "3", "--runs", str(tmp_path)])
    assert "use --include-rated" in told.stderr


def test_the_ratings_of_one_person_are_too_few() -> None:
    with pytest.raises(ScenarioError, match="ratings of only one person"):
        simulate(data=pl.DataFrame({"user": [1] * 9, "item": range(9), "rating": [1, 2, 3] * 3}))


def test_commands_recommend_with_titles(kept: Path) -> None:
    words = ("f", "--runs", kept.parent, "-k", 3)
    assert [row["title"][0] for row in json_of("run recommend", *words, "--likes", "m1, m4,m7")] == ["a"] * 3
    shown = run("run", "recommend", *words, "--user", "u3")
    assert shown.count("b film") == 3
    assert "its user ids look like" in refused("run", "recommend", *words, "--user", "nobody")


def test_an_export_has_everything_that_serving_needs(kept: Path, tmp_path: Path) -> None:
    run = Run.load(kept)
    path = tmp_path / "out" / "films.safetensors"
    facts = run.export(path)
    assert facts["digest"] == run.rows[-1].digest
    assert np.array_equal(load_file(path)["rows"], run.model.rows)
    assert read_catalogue(tmp_path / "out" / "films.catalogue.csv").ids == run.recommender.catalogue.ids
    task = run.recommender.world.task
    assert read_weights(path, task.task_id, Shape.of(task)).rows.tobytes() == run.model.rows.tobytes()
    with pytest.raises(WeightsError):  # a planted fault: another task's shape
        read_weights(path, task.task_id, Shape(items=25, width=5, dense=0))
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    assert TaskSpec.decode(metadata["specification"].encode()) == task
    assert json.loads(metadata["run"])["scenario"] == run.scenario.as_json()
    with pytest.raises(RunError, match="not be overwritten"):
        run.export(path)


def test_a_run_that_was_not_kept_has_its_model_all_the_same() -> None:
    run = simulate(**SMALL)
    assert run.model.digest.hex() == run.rows[-1].digest
    assert len(run.recommend(user="3", k=2)) == 2
    with pytest.raises(RunError, match="secemb simulate"):
        _ = Run(name="x", scenario=run.scenario, way=run.way, task_id=run.task_id).model


def test_a_run_says_why_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def cut(row: Row) -> None:
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(**SMALL, runs=tmp_path, name="cut", save_every=1, watch=cut)
    simulate(**SMALL, runs=tmp_path, name="whole")
    for name, why, words in (("cut", "interrupted", "to resume it"), ("whole", "all rounds", "all rounds")):
        assert json.loads((tmp_path / name / "run.json").read_bytes())["ended"] == why
        show_run(Run.load(tmp_path / name))
        assert words in capsys.readouterr().out
    assert [row["ended"] for row in list_runs(tmp_path)[0]] == ["interrupted", "all rounds"]


def test_the_list_has_the_interactions_and_the_interval_of_each_figure(tmp_path: Path) -> None:
    rated = simulate(**SMALL, runs=tmp_path, name="rated")
    chosen = simulate(**SMALL | {"loss": "bpr"}, runs=tmp_path, name="chosen")
    assert rated.final is not None
    assert chosen.final is not None
    rows = {row["name"]: row for row in json_of("run list", "--runs", tmp_path)}
    for run_, figure in ((rated, "rmse"), (chosen, "ndcg")):
        model, row = (run_.final or {})["model"], rows[run_.name]
        assert row["held_out"] == model["interactions"] > 0
        assert row["interval"] == [model[figure]["low"], model[figure]["high"]]
        assert row["interval"][0] < row[figure] < row["interval"][1]
    coverage = chosen.final["model"]["coverage"]
    assert (rows["rated"]["coverage"], rows["chosen"]["coverage"]) == (None, coverage)
    assert 0 < coverage < 1
    shown = run("run", "list", "--runs", tmp_path)
    low, high = rows["rated"]["interval"]
    assert f"{low:.4f}-{high:.4f}" in shown
    assert f"{coverage:.4f}" in shown
    shown = run("run", "show", "chosen", "--runs", tmp_path)
    assert f"{coverage:.1%}" in shown
    assert f"{chosen.final['popularity']['coverage']:.1%}" in shown
    assert f"{chosen.final['model']['interactions']:,} held-out items" in shown


def test_a_run_does_not_stop_while_it_still_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"devices": 100, "items": 150, "cohort": 20, "rounds": 100, "seed": 2, "way": PLAIN}
    options["patience"] = 2
    whole = simulate(**options)
    assert whole.ended == "all rounds"
    certain = property(lambda row: (mark := Mark.of(row.window)) and Mark(mark.value, mark.value, mark.value))
    monkeypatch.setattr(Row, "mark", certain)  # planted: no figure is ever wrong
    hasty = simulate(**options)
    assert hasty.ended == "stopped early"
    ends = [(found.final or {})["model"]["rmse"]["value"] for found in (whole, hasty)]
    assert ends[1] > 1.005 * ends[0]


def test_a_run_that_gets_worse_stops_and_keeps_its_best_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(optimiser: Optimiser, task: TaskSpec, model: Model, *rest: Any) -> Model:
        moved = move_model(optimiser, task, model, *rest)
        return moved if moved.version <= 30 else replace(moved, rows=moved.rows[::-1].copy())

    monkeypatch.setattr(engine, "move_model", spoil)  # planted: from round 30 on items get the rows of others
    found = simulate(devices=100, items=150, cohort=40, rounds=100, seed=2, way=PLAIN)
    assert found.ended == "stopped early"
    assert found.trained < 100
    assert found.model.version <= 30 < found.rows[-1].version


def test_a_run_without_ratings_shows_its_rankings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = simulate(**SMALL | {"loss": "bpr"}, runs=tmp_path, name="one")
    measured = [row.ndcg for row in choices.rows if row.ndcg is not None]
    assert measured
    assert "NDCG@10" in choices.plot()
    monkeypatch.setenv("COLUMNS", "80")
    show_run(choices)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("popularity"))
    assert re.fullmatch(r"popularity +(\d\.\d{4} ± \d\.\d{4} *){4}", line), "no figure is broken at 80 columns"
    show_run(choices)
    show_comparison(compare_runs(choices, choices))
    shown = capsys.readouterr().out
    assert "NDCG" in shown
    assert shown.count(f"{measured[0]:.4f}") >= 3  # in the table, and twice in the comparison


def test_a_ranking_below_popularity_is_said_whatever_the_hit_rate(capsys: pytest.CaptureFixture[str]) -> None:
    even = {"value": 0.5, "low": None, "high": None}
    names = ("hit_rate", "recall", "ndcg", "mrr")
    simple: dict[str, Any] = {"interactions": 9, "people": 3, "k": 10, **dict.fromkeys(names, even)}
    show_final({"model": simple | {"ndcg": even | {"value": 0.4}}, "popularity": simple}, advice="wait")
    assert "not better than a simpler one: wait." in capsys.readouterr().out
    show_final({"model": simple | {"ndcg": even | {"value": 0.6}}, "popularity": simple}, advice="wait")
    assert "not better than a simpler one" not in capsys.readouterr().out


def test_a_run_with_a_privacy_budget_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = simulate(**SMALL, epsilon=8.0)
    show_run(noisy)
    shown = capsys.readouterr().out
    assert "ε = 8, δ = 0.0001 for each user" in shown
    assert "those who do not know who took part" in shown
    privacy = noisy.engines[0].world.task.privacy
    assert privacy is not None
    terms = Terms(multiplier=float(privacy.train.multiplier), delta=1e-4)
    assert f"against others ε = {epsilon(terms, 5):.3g}" in " ".join(shown.split())


def test_an_epsilon_that_cannot_be_computed_here_is_called_unknown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = simulate(**SMALL, epsilon=8.0)

    def missing(*_: object) -> None:
        raise AccountantMissingError("dp-accounting is not installed")

    monkeypatch.setattr(view, "terms_of", missing)
    show_run(noisy)
    assert "unknown: dp-accounting is not installed" in capsys.readouterr().out


def test_nobody_is_told_to_train_longer_where_rounds_cost_budget_or_did_not_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Ratings that say nothing: no model is better than their mean.
    random = np.random.default_rng(1)
    lines = [(person, item) for person in range(24) for item in random.choice(60, 15, replace=False).tolist()]
    noise = random.choice([1.0, 5.0], len(lines)).tolist()
    users, items = zip(*lines, strict=True)
    data = pl.DataFrame({"user": users, "item": items, "rating": noise})
    options = {name: SMALL[name] for name in ("cohort", "dimension", "evaluate_every", "patience")}
    for more, words in (
        ({"rounds": 5, "epsilon": 2.0}, "more rounds would cost budget"),
        ({"rounds": 5}, "train longer"),
        ({"rounds": 200, "patience": 1, "schedule": "constant"}, "more rounds did not help"),
    ):
        show_run(simulate(data=data, **options | more))
        shown = " ".join(capsys.readouterr().out.split())
        assert "not better than a simpler one" in shown
        assert words in shown
        assert ("train longer" in shown) == (words == "train longer")


@pytest.mark.parametrize("file", ["ratings.npz", "state.safetensors"])
def test_a_damaged_file_of_a_run_is_named(file: str, kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    shutil.copytree(kept, folder)
    (folder / file).write_bytes((folder / file).read_bytes()[:100])
    with pytest.raises(RunError, match=f"{re.escape(file)} is corrupted"):
        Run.load(folder).recommend(user="u1")


def test_compare_needs_two_runs_or_one_and_plain(kept: Path) -> None:
    for words in (("f",), ("f", "f", "--plain")):
        assert "give two runs, or one run and --plain" in refused("run", "compare", *words, "--runs", kept.parent)
