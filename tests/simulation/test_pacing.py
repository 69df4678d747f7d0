"""Simulated fleets against the real conductor: what `make pacing` measures, in small, and what it would find."""

from functools import cache

import pytest

import secemb_server0.leader
from secemb_lab.pacing.goals import goals
from secemb_lab.pacing.scenarios import Figures, Scenario, simulate
from secemb_party.ledger import RoundState
from secemb_server0.conductor import Advance, Decision, Facts, decide
from secemb_server0.pace import Forecast

UNDISTURBED = Scenario(name="undisturbed", devices=60, hours=0.2)
DROPPING = Scenario(name="30 % drop out", devices=150, hours=0.3, drop_out=0.3, upload_seconds=120)
AWAY = Scenario(name="server 1 away", devices=60, hours=0.25, away=(200.0, 500.0))


once = cache(simulate)  # for what several tests look at


def missed(found: Figures) -> list[str]:
    return [one.name.split(": ")[1] for one in goals([found]) if not one.reached]


@pytest.mark.parametrize("scenario", [UNDISTURBED, DROPPING, AWAY], ids=lambda one: one.name)
def test_a_fleet_that_is_disturbed_or_not_reaches_every_goal(scenario: Scenario) -> None:
    found = once(scenario)
    assert found.rounds >= 5
    assert missed(found) == []


def test_two_runs_of_a_scenario_are_alike() -> None:
    assert simulate(UNDISTURBED) == once(UNDISTURBED)


def seal_early(facts: Facts, now: float) -> Decision:
    return Advance(RoundState.OPEN) if facts.state is RoundState.OPEN and facts.complete else decide(facts, now)


def test_a_conductor_that_seals_with_the_first_session_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secemb_server0.leader, "decide", seal_early)
    assert missed(simulate(UNDISTURBED))[:2] == ["share of rounds published", "finished sessions that did not count"]


def test_devices_that_are_told_to_come_at_once_while_server_1_is_away_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet = once(AWAY)
    monkeypatch.setattr(Forecast, "away", lambda *_: None)
    busy = simulate(AWAY)
    assert quiet.told_away is not None
    assert busy.told_away is not None
    assert busy.told_away > 5 * quiet.told_away
