"""`make scale` in its smallest setting: a real cluster, a killed worker, and a report that can be continued."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.e2e.commands import check_shape, invoke

from secemb_lab.report.report_file import Goal
from secemb_lab.scale import report
from secemb_lab.scale.section import Section


@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_short_report_finds_the_same_bytes_and_reaches_its_goals(tmp_path: Path) -> None:
    done = invoke("scale", "--quick", "--sections", "engines", "--out", tmp_path / "scale.json", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    check_shape("scale", found)
    (section,) = found["sections"]
    assert {one["engine"] for one in section["figures"]} == {"threads", "ray"}
    assert len({one["digest"] for one in section["figures"]}) == 1
    assert all(one["reached"] for one in found["goals"])
    assert "after a kill" in (tmp_path / "scale.md").read_text()


def a_section(name: str, measured: float) -> Section:
    goals = [Goal.at_least(f"{name}: share", measured, 1)]
    return Section(name=name, title=name.title(), columns=["what"], rows=[[name]], goals=goals, figures=[{"n": 1}])


def test_sections_are_kept_and_a_missed_goal_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def load(name: str) -> object:
        def measure(*, quick: bool) -> Section:
            measured.append(name)
            return a_section(name, 1.0 if quick else 0.5)

        return measure

    monkeypatch.setattr(report, "SECTIONS", {"first": "", "second": ""})
    monkeypatch.setattr(report, "_load", load)
    out = tmp_path / "scale.json"
    options = {"names": ["second"], "quick": True, "resume": False, "as_json": True}
    assert report.run(out, **options) == 0  # type: ignore[arg-type]
    assert report.run(out, **{**options, "names": [], "resume": True}) == 0  # type: ignore[arg-type]
    assert measured == ["second", "first"]
    assert [one["name"] for one in json.loads(out.read_text())["sections"]] == ["first", "second"]
    assert report.run(out, **{**options, "quick": False}) == 1  # type: ignore[arg-type]
    known = report.FILE.read(out)
    assert known is not None
    assert [one.name for one in known.sections] == ["second"]  # figures of a quick run are not mixed with others
    assert "**MISSED**" in out.with_suffix(".md").read_text()
    assert replace(known, sections=[]) != known
