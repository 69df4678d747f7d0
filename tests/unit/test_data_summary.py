"""What `secemb data show` says is what is counted by hand."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from tests.e2e.commands import json_of, refused, run
from tests.unit.made_up_ratings import made_up_ratings

from secemb_tools.datasets import read_ratings
from secemb_tools.datasets.summary import activity_counts, describe, draw, kept_share, rating_counts, suggest_capacity

# Ann has one rating, Bob two, Cec five.
TABLE = "user,item,rating,time\nann,a,1,0\nbob,a,2,60\nbob,b,2,60\n" + "".join(
    f"cec,{item},5,86400\n" for item in "abcde"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    return path


def test_the_facts_are_those_counted_by_hand(table: Path) -> None:
    found = describe(read_ratings(table))
    assert (found["people"], found["items"], found["ratings"]) == (3, 5, 8)
    assert found["density"] == pytest.approx(8 / 15)
    assert found["sparsity"] == pytest.approx(7 / 15)
    assert found["mean"] == pytest.approx(30 / 8)
    assert found["rating_counts"] == {"1": 1, "2": 2, "5": 5}
    assert found["ratings_per_person"] == pytest.approx(
        {"0 %": 1, "10 %": 1.2, "25 %": 1.5, "50 %": 2, "75 %": 3.5, "90 %": 4.4, "99 %": 4.94, "100 %": 5}
    )
    assert (found["first_time"], found["last_time"]) == ("1970-01-01T00:00:00+00:00", "1970-01-02T00:00:00+00:00")
    assert (found["feedback"], found["kind"], found["name"]) == ("ratings", None, "mine")


def test_a_capacity_keeps_what_fits_of_everyone(table: Path) -> None:
    ratings = read_ratings(table)
    assert [kept_share(ratings, capacity) for capacity in (1, 2, 3, 4, 5, 6)] == [3 / 8, 5 / 8, 6 / 8, 7 / 8, 1, 1]
    assert [suggest_capacity(ratings, keep) for keep in (0.375, 0.38, 0.75, 0.9, 1.0)] == [1, 2, 3, 5, 5]
    many = made_up_ratings(people=40, items=60, count=900)
    best = suggest_capacity(many)
    assert kept_share(many, best) >= 0.9 > kept_share(many, best - 1)


def test_a_capacity_is_suggested_with_the_share_that_it_keeps(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    lines = [f"{person},{item},3" for person, count in enumerate((10, 10, 16)) for item in range(count)]
    path.write_text("\n".join(["user,item,rating", *lines, "9,9,4"]) + "\n")
    found = json_of("data show", path)
    assert (found["suggested_capacity"], found["suggested_capacity_keeps"]) == (13, pytest.approx(34 / 37))
    assert "13, which keeps 91.9%" in run("data", "show", path)


@pytest.mark.parametrize(
    ("usual", "far"), [("12345", "99999"), ("12345", "-40"), ("12345", "55"), ("5", "50"), (("0.1", "0.9"), "9")]
)
def test_a_rating_far_from_the_others_is_named_and_kept(
    usual: tuple[str, ...], far: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{person},{item},{usual[(person + item) % len(usual)]}" for person in range(10) for item in range(12)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
    assert json_of("data show", path)["junk"]["far_ratings"] == []
    path.write_text("\n".join(["user,item,rating", *lines[:40], f"77,3,{far}", *lines[40:]]) + "\n")
    found = json_of("data show", path)
    assert (found["ratings"], found["junk"]["skipped"]) == (121, 0)
    [named] = found["junk"]["far_ratings"]
    assert (named["file"], named["line"], named["value"], named["count"]) == (str(path), 42, far, 1)
    capsys.readouterr()
    read_ratings(path)  # as training does
    said = capsys.readouterr().err
    assert f"mine.csv, line 42: the rating is far from nearly all others, which are {usual[0]} to {usual[-1]}" in said
    assert f"({far!r}). If this is a mistake, correct or remove it" in said


def test_ratings_with_a_long_tail_or_on_any_scale_are_not_called_mistakes() -> None:
    random = np.random.default_rng(1)
    for values in (
        random.integers(1, 6, 2000).astype(float),
        random.integers(0, 101, 2000).astype(float),
        random.uniform(-10, 10, 2000),
        np.repeat([5.0, 1.0], [1990, 10]),  # nearly all are equal
    ):
        frame = pl.DataFrame({"user": np.arange(2000) // 20, "item": np.arange(2000) % 20, "rating": values})
        assert read_ratings(frame).report.far == ()


def test_histograms_have_everything_once(table: Path) -> None:
    assert activity_counts(read_ratings(table)) == {"1": 1, "2 to 3": 1, "4 to 7": 1}
    table.write_text("user,item,rating\n" + "".join(f"u,{n},{n / 7}\n" for n in range(50)))
    found = rating_counts(read_ratings(table))
    assert len(found) == 10
    assert sum(found.values()) == 50


def test_the_command_shows_distributions_junk_and_a_picture(table: Path, tmp_path: Path) -> None:
    table.write_text(TABLE + "cec,f,good,1\n")
    assert "--junk 0.12" in refused("data", "show", table)
    shown = run("data", "show", table, "--junk", 0.12, "--plot", tmp_path / "mine.svg")
    assert "50: 100.0%" in shown
    assert "█" in shown
    assert "1 of 9" in shown
    found = json_of("data show", table, "--junk", 0.12)
    assert found["junk"]["faults"] == [
        {"file": str(table), "reason": "the rating is not a number", "count": 1, "line": 10, "value": "good"}
    ]
    root = ElementTree.fromstring((tmp_path / "mine.svg").read_text())
    assert len(root.findall("{*}svg")) == 3
    assert len(ElementTree.fromstring(draw(read_ratings(table, columns={"user": "user", "item": "item"})))) == 2


def test_columns_and_titles_can_be_given(tmp_path: Path) -> None:
    table, items = tmp_path / "mine.csv", tmp_path / "names.csv"
    table.write_text("who,what,mark\nann,1,3\nbob,2,4\n")
    items.write_text("id,title\n1,Ex\n2,Why\n3,Zed\n")
    assert "--columns user=who,item=what" in refused("data", "show", table)
    found = json_of("data show", table, "--columns", "user=who,item=what,rating=mark", "--catalogue", items)
    assert (found["people"], found["items"], found["titles"], found["mean"]) == (2, 3, 3, 3.5)
    assert "user=NAME,item=NAME" in refused("data", "show", table, "--columns", "user:who")
    words = ("--how", "by-time", "--columns", "user=who,item=what")
    assert "use the split per-user" in refused("data", "split", table, "--out", tmp_path / "parts", *words)
