"""`make attack` in its smallest setting: real servers, real hostile clients, and what would be found out."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.commands import check_shape, invoke, read_json

from secemb_lab.attack.attack_goals import goals
from secemb_lab.attack.attacks import ATTACKS, FIGURES, LOAD, PROMOTION, REJECTED, WITHIN
from secemb_lab.attack.report import QUICK, SLOW_ROUNDS, read, write
from secemb_lab.attack.stage import Figures
from secemb_tools.errors import OperationError


def test_attacks_on_real_servers_change_nothing_and_are_seen(tmp_path: Path) -> None:
    chosen = ("random words", "wrap-around", "requests without bodies")
    options = [word for name in chosen for word in ("--attack", name)]
    done = invoke("attack", "--quick", *options, "--output", tmp_path / "figures.json", "--json")
    assert done.exit_code == 0, done.output
    found = read_json(done.stdout)
    check_shape("attack", found)
    assert [one["attack"] for one in found["attacks"]] == ["none", *chosen]
    forged = found["attacks"][1]
    assert [one["sessions rejected"] for one in forged["seen"]] == [2, 2]
    assert forged["tokens"]["hostile"]["rejected"] == 2
    assert forged["tokens"]["honest"].keys() == {"joined", "completed"}
    page = (tmp_path / "figures.md").read_text(encoding="utf-8")
    assert all(name in page for name in chosen)
    assert "<svg" in (tmp_path / "figures-rmse.svg").read_text(encoding="utf-8")


GOOD = Figures(
    attack="random words",
    kind=REJECTED,
    rounds=50,
    published=50,
    devices=400,
    finished=400,
    device_seconds=0.5,
    round_seconds=1.0,
    latency_ratio=1.1,
    rmse=0.9,
    rmse_beyond=0.001,
    memory_growth=[1_000_000, 0],
    seen=[{"sessions rejected": 50}, {"sessions rejected": 50}],
    tokens={"honest": {"joined": 400}, "hostile": {"joined": 50, "rejected": 50}},
)


def missed(found: Figures, *, quick: bool = False) -> list[str]:
    return [one.name for one in goals([found], quick=quick) if not one.reached]


def test_an_attack_without_effect_reaches_every_goal() -> None:
    assert missed(GOOD) == []


@pytest.mark.parametrize(
    "change",
    [
        {"finished": 399},
        {"latency_ratio": 2.1},
        {"rmse_beyond": 0.02},
        {"rows_touched": 1},
        {"tokens": {"honest": {"joined": 400, "rejected": 1}, "hostile": {}}},
        {"memory_growth": [0, 301_000_000]},
        {"seen": [{"sessions rejected": 50}, {}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_effect_of_an_attack_misses_its_goal(change: dict[str, object]) -> None:
    assert len(missed(replace(GOOD, **change))) == 1  # type: ignore[arg-type]


def test_a_quick_run_has_no_goals_of_time() -> None:
    assert missed(replace(GOOD, latency_ratio=9.0, rmse_beyond=1.0), quick=True) == []


def test_what_happens_within_the_bound_is_reported_only() -> None:
    assert missed(replace(GOOD, kind=WITHIN, rows_touched=9, rmse_beyond=0.5, seen=[{}, {}])) == []


def test_false_figures_must_be_discarded() -> None:
    discarded = [{"rounds: discarded": 25}, {"rounds: discarded": 25}]
    assert missed(replace(GOOD, kind=FIGURES, rmse_beyond=None, seen=discarded)) == []
    assert len(missed(replace(GOOD, kind=FIGURES, rmse_beyond=None, seen=[{}, {}]))) == 2


def test_a_quick_run_has_attacks_of_each_kind() -> None:
    assert {ATTACKS[name].kind for name in QUICK} >= {REJECTED, WITHIN, LOAD}


def test_a_stopped_report_keeps_the_attacks_that_ran_as_long(tmp_path: Path) -> None:
    path = tmp_path / "attack.json"
    assert read(path, quick=False, rounds=None) == {}
    promoted = replace(GOOD, attack=PROMOTION, rank=(300, 1))
    shorter = replace(GOOD, attack="wrong cs", rounds=49)
    slow = replace(GOOD, attack="silent tokens", rounds=SLOW_ROUNDS)
    write(path, [GOOD, promoted, shorter, slow], quick=False)
    kept = {one.attack: one for one in (GOOD, promoted, slow)}
    assert read(path, quick=False, rounds=None) == kept
    assert read(path, quick=True, rounds=None) == read(path, quick=False, rounds=2) == {}


def test_a_report_does_not_go_on_with_another_file(tmp_path: Path) -> None:
    path = tmp_path / "attack.json"
    path.write_text('{"attacks": [{"attack": 1}]}')
    with pytest.raises(OperationError, match="choose another --output"):
        read(path, quick=False, rounds=None)
