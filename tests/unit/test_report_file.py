"""The files of a report: what was written can be read again, and missed goals are marked and make a report fail."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from secemb_lab.report.report_file import Goal, ReportFile, goals_table, join_page
from secemb_tools.errors import OperationError


@dataclass(frozen=True, kw_only=True)
class Measured:
    values: list[float] = field(default_factory=list)


def goals(found: Measured) -> list[Goal]:
    return [Goal.at_least(f"value {place}", value, 1.0) for place, value in enumerate(found.values)]


def page(found: Measured, pictures: Sequence[str]) -> str:
    sections = {"Goals": goals_table(goals(found)) if found.values else "", "Nothing": ""}
    return join_page(("# Values\n", ""), sections, pictures)


FILE = ReportFile(
    kind=Measured, goals=goals, plots=lambda found: [("all", "<svg/>")] if found.values else [], page=page
)


def test_what_was_written_can_be_read_again(tmp_path: Path) -> None:
    out, found = tmp_path / "new" / "values.json", Measured(values=[2.0, 0.5])
    FILE.write(out, found)
    assert FILE.read(out) == found
    assert [one["reached"] for one in json.loads(out.read_bytes())["goals"]] == [True, False]
    assert (out.parent / "values-all.svg").read_text() == "<svg/>"
    text = out.with_suffix(".md").read_text()
    assert text.startswith("# Values\n\n## Goals\n\n| goal |")
    assert text.endswith("## Plots\n\n![values-all.svg](values-all.svg)\n")
    assert "Nothing" not in text


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "other.json"
    assert FILE.read(out) is None
    out.write_text('{"values": "none"}')
    with pytest.raises(OperationError, match="another --out"):
        FILE.read(out)


def test_figures_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        FILE.write(tmp_path / "values.json", Measured(values=[float("nan")]))


@pytest.mark.parametrize(("values", "code"), [([], 0), ([1.0], 0), ([1.0, 0.9], 1)])
def test_a_report_that_misses_a_goal_fails(
    values: list[float], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, found = tmp_path / "values.json", Measured(values=values)
    FILE.write(out, found)
    assert FILE.show(out, found, as_json=False) == code
    assert capsys.readouterr().out.startswith("# Values")
    assert FILE.show(out, found, as_json=True) == code
    assert json.loads(capsys.readouterr().out)["values"] == values


def test_the_table_of_goals_marks_what_was_missed() -> None:
    text = goals_table([Goal.at_most("error", 0.9, 0.8), Goal.at_least("share", 0.9, 0.8)])
    assert "| error | ≤ 0.8 | 0.9 | **MISSED** |" in text
    assert "| share | ≥ 0.8 | 0.9 | reached |" in text
