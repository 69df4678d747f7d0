"""The report on sequences from end to end: what it measures and keeps, and that bytes are those of encoded messages."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.e2e.commands import check_shape, read_json
from typer.testing import CliRunner, Result

from secemb_lab.__main__ import app
from secemb_lab.report import sequences, sequences_cost, sequences_run
from secemb_lab.report.quality_ratings import SessionBytes
from secemb_lab.report.sequences_cost import DeviceCost, encoded_bytes, measure_catalogue_size
from secemb_lab.report.sequences_run import Case, measure_case
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.scenario import make_world

HTTP = 8192  # bytes of all requests of a round, and of all answers, that are no message
SMALL: dict[str, Any] = {"devices": 10, "cohort": 4, "rounds": 4, "items": 120, "capacity": 21, "evaluate_every": 3}


def report(out: Path, *words: object) -> Result:
    return CliRunner().invoke(app, ["sequences", "--quick", "--out", str(out), *map(str, words)])


def small(private_rounds: int | None, **changes: Any) -> Case:
    return Case(model="sasrec", private_rounds=private_rounds, settings={**SMALL, **changes})


@pytest.fixture
def without_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what starts servers and processes: the first test measures it."""
    cost = DeviceCost(cpu_ms={"keys": 1.0}, peak_bytes=1, process_bytes=1)
    monkeypatch.setattr(sequences_run, "measure_device", lambda *_, **__: cost)
    monkeypatch.setattr(sequences_run, "measure_wire", lambda *_: {"direct": (1, 1), "relayed": (1, 1)})


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch, without_costs: None) -> None:
    monkeypatch.setattr(sequences, "_quick_cases", lambda: [small(2)])
    monkeypatch.setattr(sequences_cost, "AMAZON", PaperCatalogue("Amazon", 5000, 100))


def test_a_short_report_measures_every_case_and_writes_its_files(tmp_path: Path) -> None:
    out = tmp_path / "here" / "sequences.json"
    done = report(out, "--json")
    assert done.exit_code == 0, done.output
    found = read_json(done.stdout)
    check_shape("sequences", found)
    assert json.loads(out.read_text()) == found
    assert found["goals"]
    assert all(goal["reached"] for goal in found["goals"])
    (first, *_), (size, *_) = found["runs"], found["sizes"]
    assert first["private_wanted"] == first["rounds"]
    for one in found["runs"]:
        assert one["private_rounds"] == one["private_wanted"] > 0
        assert sum(one["device"]["cpu_ms"].values()) > 0 < one["device"]["peak_bytes"]
    for way, moved in first["wire"].items():
        for counted, messages in zip(moved, first["bytes"][way], strict=True):
            assert 0 < counted - messages < HTTP, "a real device moves its messages and the heads of HTTP"
    assert (size["items"], size["dimension"]) == (9_267_503, 50)
    assert "| made-up | SASRec |" in out.with_suffix(".md").read_text()
    for picture in out.parent.glob("*.svg"):
        ElementTree.parse(picture)


@pytest.mark.usefixtures("without_costs")
@pytest.mark.parametrize("private_rounds", [None, 3])
def test_one_round_that_differs_is_found(
    private_rounds: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of one device in one round, too large by the smallest step that the ring has.

    One of them alone may be lost where the optimiser's step is rounded to the precision of the model.
    """
    assert measure_case(small(private_rounds), runs=tmp_path / "right", processes=1).same_bits
    write, altered_in = DeviceSession.write, list[int]()

    def altered(session: DeviceSession, items, updates, dense=None):  # type: ignore[no-untyped-def]
        if session.round.number == 1 and not altered_in and updates.size:
            altered_in.append(1)
            updates = updates + np.float32(2.0**-session.round.task.fraction_bits)
        return write(session, items, updates, dense)

    monkeypatch.setattr(DeviceSession, "write", altered)
    assert not measure_case(small(private_rounds), runs=tmp_path / "wrong", processes=1).same_bits


def test_the_bytes_of_a_task_are_the_lengths_of_its_encoded_messages() -> None:
    world = make_world(model="sasrec", **SMALL)
    round_ = RoundSpec(task=world.task, number=1, model_version=1, model_digest=bytes(32))
    session = DeviceSession(round_, np.arange(12))
    session.write(np.arange(12), np.zeros((12, world.task.row_width)))
    assert encoded_bytes(session) == SessionBytes.of(world.task)


def test_a_session_over_all_of_amazon_has_the_bytes_that_its_task_says() -> None:
    (found,) = measure_catalogue_size(["sasrec"], [50])
    assert (found.items, found.capacity, found.row_width, found.dense_size) == (9_267_503, 101, 51, 28_500)
    assert found.update_bytes == 4 * (9_267_503 * 51 + 28_500)
    assert found.bytes.direct[1] == 2 * (24 + found.slots * 52 * 4) + 4 * 28_500
    assert found.reductions[0] > 2342
    assert found.reductions[1] > found.reductions[0]


@pytest.mark.usefixtures("one_case")
def test_cases_that_are_not_measured_stay_and_finished_ones_are_kept_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sequences.json"
    assert report(out).exit_code == 0
    before = json.loads(out.read_text())
    assert report(out, "--cases", "amazon-size").exit_code == 0
    after = json.loads(out.read_text())
    assert after["runs"] == before["runs"]
    assert after["sizes"] != before["sizes"], "times differ where it was measured again"
    monkeypatch.setattr(Engine, "step", None)  # nothing may be trained
    assert report(out, "--resume").exit_code == 0
    assert json.loads(out.read_text())["runs"] == before["runs"]
    assert report(out).exit_code != 0


@pytest.mark.usefixtures("one_case")
def test_a_case_that_was_cut_short_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    monkeypatch.setattr(sequences, "_quick_cases", lambda: [small(2, rounds=14)])
    assert report(whole, "--cases", "made-up-sasrec").exit_code == 0
    step, steps = Engine.step, list[int]()

    def stop(engine: Engine) -> Any:
        steps.append(engine.rounds)
        if len(steps) == 13:  # rounds are kept after each ten
            raise KeyboardInterrupt
        return step(engine)

    monkeypatch.setattr(Engine, "step", stop)
    assert report(cut, "--cases", "made-up-sasrec").exit_code != 0
    assert cut.with_suffix(".md").is_file(), "what is there can be looked at"
    assert report(cut, "--cases", "made-up-sasrec", "--resume").exit_code == 0
    assert steps[13] == 10, "it goes on where the run was kept"
    first, second = (json.loads(out.read_text())["runs"][0] for out in (whole, cut))
    assert (first["final"], first["curve"]) == (second["final"], second["curve"])


@pytest.mark.usefixtures("one_case")
def test_the_command_fails_when_a_goal_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_lab.report.sequences_goals.SEQUENCE_BARS", {"made-up": {"sasrec": (1.01, 1.01)}})
    done = report(tmp_path / "sequences.json", "--cases", "made-up-sasrec")
    assert done.exit_code == 1
    assert done.stdout.count("**MISSED**") == 2
    assert done.stdout == (tmp_path / "sequences.md").read_text()


def test_sets_that_are_there_are_measured_with_prefixes_of_private_runs(tmp_path: Path) -> None:
    for folder in ("ml-1m", "amazon-video-games"):
        (tmp_path / folder).mkdir()
    cases = sequences.cases_of(sequences.SequenceOptions(data=tmp_path))
    assert cases["ml-1m-sasrec"].private_rounds is None
    prefix = cases["amazon-video-games-sasrec"].private_rounds
    assert prefix is not None
    assert prefix - prefix // 6 >= 50, "every sixth round evaluates"
    assert not any(one.dataset == "shakespeare-roles" for one in cases.values())


def test_a_case_that_is_not_known_is_refused(tmp_path: Path) -> None:
    done = report(tmp_path / "sequences.json", "--cases", "ml-1m-mf")
    assert done.exit_code == 2
    assert "choose from made-up-sasrec" in " ".join(done.output.replace("│", " ").split())
