"""The report: verdicts that follow from the figures, a picture that opens, and a command that says what is wrong."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.text import Text
from tests.unit.made_up_ratings import made_up_ratings, write_as_movielens
from typer.testing import CliRunner, Result

from secemb_lab.__main__ import app
from secemb_lab.report.utility import Figures, Point, compare, draw, table
from secemb_tools.datasets import split
from secemb_tools.simulation.recipes import Recipe

QUIET = Console(quiet=True)


def figures(*points: Point, bar: float | None = 0.915) -> Figures:
    return Figures(model="mf", rounds=points[-1].round, paper=0.944, bar=bar, curve=list(points))


def small(private_rounds: int | None) -> Figures:
    data = split(made_up_ratings(people=20, items=40, count=400), seed=1)
    recipe = Recipe(model="mf", rounds=4, cohort=8, capacity=12)
    return compare(QUIET, recipe, data, seed=1, private_rounds=private_rounds)


def test_both_runs_are_compared_at_every_point() -> None:
    found = small(None)
    assert [point.round for point in found.curve] == [1, 2, 3, 4]
    assert found.same_bits
    assert found.difference == 0
    assert found.sessions == 8 + 8 + 4 + 8
    assert found.private_seconds > 0


def test_a_private_run_may_end_earlier() -> None:
    found = small(2)
    assert [point.private is None for point in found.curve] == [False, False, True, True]
    assert found.compared == found.curve[1]
    assert found.difference == 0


def test_a_report_without_a_private_run_has_no_difference() -> None:
    found = small(0)
    assert found.difference is None
    assert found.same_bits is None
    assert found.private_seconds == 0
    assert found.good


@pytest.mark.parametrize(
    ("plain", "private", "good"),
    [(0.914, 0.914, True), (0.914, None, True), (0.916, 0.916, False), (0.9149, 0.9155, False), (0.91, 0.9105, True)],
)
def test_a_bar_must_be_reached_by_both_runs(plain: float, private: float | None, good: bool) -> None:
    assert figures(Point(1400, plain, private)).good is good


@pytest.mark.parametrize(("private_rounds", "mark"), [(None, "good"), (2, "good, plain run"), (0, "good, plain run")])
def test_the_mark_says_which_run_was_judged_at_the_end(private_rounds: int | None, mark: str) -> None:
    found = small(private_rounds)
    cells = list(table([found], control=1.0).columns[-1].cells)
    assert [Text.from_markup(str(cell)).plain for cell in cells] == [mark]


def test_a_private_run_that_is_worse_than_the_plain_one_is_not_good() -> None:
    assert not figures(Point(1400, 0.90, 0.902), bar=None).good
    assert not figures(Point(1400, 0.90, 0.898), bar=None).good  # nor one that is better: they were to be the same


def test_a_run_without_a_bar_is_good_if_nothing_is_lost() -> None:
    assert figures(Point(10, 1.2, 1.2), bar=None).good


def test_the_table_has_a_row_for_each_model() -> None:
    console = Console(width=140)
    with console.capture() as captured:
        found = figures(Point(50, 0.95, 0.95), Point(1400, 0.914, None))
        console.print(table([replace(found, same_bits=True), replace(found, same_bits=False)], 0.938))
    text = captured.get()
    for part in (
        "mf",
        "1,400",
        "0.9500 after 50",
        "0.9140",
        "0 bits",
        "+0.000000",
        "0.9440",
        "0.9150",
        "good",
        "0.9380",
    ):
        assert part in text


def test_the_picture_is_well_formed_and_has_a_dotted_line_through_each_private_point() -> None:
    found = [figures(Point(50, 1.4, 1.4), Point(100, 0.93, 0.93), Point(150, 0.92, None)), figures(Point(9, 0.9, None))]
    root = ElementTree.fromstring(draw(found, 0.938))
    lines = root.findall("{*}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 2, 1, 0]
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, True, False, True]
    assert "biases only 0.938" in [text.text for text in root.findall("{*}text")]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    return write_as_movielens(made_up_ratings(people=20, items=40, count=400), tmp_path)


def report(films: Path, *words: str) -> Result:
    out = str(films / "here" / "utility.json")
    return CliRunner().invoke(app, ["report", "utility", "--path", str(films), "--out", out, *words])


def test_the_command_writes_figures_and_curves(films: Path) -> None:
    done = report(films, "--models", "mf,fm", "--rounds", "2")
    assert done.exit_code == 0, done.output
    document = json.loads((films / "here" / "utility.json").read_text())
    assert [one["model"] for one in document["models"]] == ["mf", "fm"]
    assert all(one["same_bits"] and one["difference"] == 0 and one["good"] for one in document["models"])
    assert document["test"] == round(0.2 * (document["train"] + document["test"]))
    ElementTree.fromstring((films / "here" / "utility.svg").read_text())


def test_the_command_fails_when_a_bar_is_missed(films: Path) -> None:
    """MovieLens is easier than this: after a hundred rounds on it the error is to be 0.944."""
    done = report(films, "--quick", "--plain")
    assert done.exit_code == 1
    assert "missed" in done.output


def test_a_model_that_is_not_known_is_refused(films: Path) -> None:
    done = report(films, "--models", "svd")
    assert done.exit_code == 2
    assert "mf, ncf, fm" in done.output


def test_a_directory_without_ratings_is_refused_with_where_to_get_them(tmp_path: Path) -> None:
    done = report(tmp_path)
    assert done.exit_code == 2
    assert "grouplens.org" in done.output
