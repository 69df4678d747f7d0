"""`make paper`, with the tables that take no time: what it writes, what it keeps, and when it fails."""

from pathlib import Path

import pytest
from tests.e2e.commands import json_of, refused, run

from secemb_lab.paper import paper_table, report, stored_tables
from secemb_lab.paper.paper_table import Body, Cell, Measurement, all_tables, table

QUICK = ("paper", "--quick", "--folder")


def names_in(folder: Path) -> list[str]:
    return [one.table.name for one in stored_tables.read(folder / "paper.json")]


def test_the_chosen_tables_are_measured_and_the_others_stay(tmp_path: Path) -> None:
    found = json_of("paper", *QUICK[1:], tmp_path, "--tables", "protocols")
    assert [one["table"]["name"] for one in found["tables"]] == ["protocols"]
    run(*QUICK, tmp_path, "--tables", "breakpoint, memory")
    assert names_in(tmp_path) == ["breakpoint", "protocols", "memory"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert all(one.title in page for name, one in all_tables().items() if name in names_in(tmp_path))


def test_a_table_that_is_there_is_not_measured_again(tmp_path: Path) -> None:
    run(*QUICK, tmp_path, "--tables", "breakpoint")
    first = stored_tables.read(tmp_path / "paper.json")
    run(*QUICK, tmp_path, "--tables", "breakpoint,protocols", "--resume")
    assert stored_tables.read(tmp_path / "paper.json")[0] == first[0]
    run(*QUICK, tmp_path, "--tables", "breakpoint")
    assert stored_tables.read(tmp_path / "paper.json")[0].table.seconds != first[0].table.seconds


def test_figures_of_a_quick_run_are_not_kept_by_a_full_one(tmp_path: Path) -> None:
    run(*QUICK, tmp_path, "--tables", "breakpoint")
    run("paper", "--folder", tmp_path, "--tables", "protocols", "--resume")
    assert names_in(tmp_path) == ["protocols"]


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    assert "there is no table 'uplaod'; there are upload, " in refused(*QUICK, tmp_path, "--tables", "uplaod", code=2)


def test_a_difference_without_a_sentence_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_table, "TABLES", dict(all_tables()))

    @table("unexplained", title="Unexplained", night_seconds=1)
    def _unexplained(settings: object, progress: object) -> Body:
        return Body(caption="", cells=[Cell(row="MF", column="ML1M", ours=1.0, paper=2.0)])

    done = run(*QUICK, tmp_path, "--tables", "unexplained", code=1)
    assert done == ""
    assert names_in(tmp_path) == ["unexplained"]


def test_the_documentation_gets_the_tables_of_full_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "STORED", tmp_path / "docs.json")
    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "docs.md")
    run("paper", "--folder", tmp_path, "--tables", "breakpoint")
    run("paper", "--folder", tmp_path, "--docs")
    run(*QUICK, tmp_path, "--tables", "protocols")
    run("paper", "--folder", tmp_path, "--docs")
    assert [one.table.name for one in stored_tables.read(tmp_path / "docs.json")] == ["breakpoint"]
    assert "## Breakpoint of the upload" in (tmp_path / "docs.md").read_text(encoding="utf-8")


def test_every_table_says_how_long_it_takes_and_all_fit_into_a_night() -> None:
    tables: dict[str, Measurement] = all_tables()
    assert all(one.night_seconds > 0 for one in tables.values())
    assert sum(one.night_seconds for one in tables.values()) < 8 * 3600
