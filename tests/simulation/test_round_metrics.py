"""What the metrics of both servers say while a round runs: its phase, its sessions and the version it leads to."""

from collections.abc import Mapping

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.ui.views.measurements import Figures

pytestmark = pytest.mark.asyncio


def figures(pair: Pair, role: int) -> Figures:
    """Return what a server has measured."""
    return Figures(pair.parties[role].metrics)


def phase(pair: Pair, role: int) -> str:
    """Return the one phase that a server says it is in."""
    [found] = [name for name, value in figures(pair, role).by("secemb_round_phase", "phase").items() if value]
    return found


def sessions(pair: Pair, role: int) -> Mapping[str, float]:
    """Return what became of the sessions of all rounds."""
    return figures(pair, role).by("secemb_round_sessions_total", "fate")


async def test_metrics_follow_a_round_on_both_servers() -> None:
    async with a_pair(rounds=1) as pair:
        opened = pair.clock.now
        assert phase(pair, 0) == phase(pair, 1) == "idle"
        await pair.step()
        for role in (0, 1):
            assert phase(pair, role) == "waiting"
            assert figures(pair, role).one("secemb_round_phase_start_timestamp_seconds") == opened
            assert figures(pair, role).one("secemb_round_upload_seconds") == pair.task.upload_seconds
        for number in range(2):
            await a_device(pair, number).take_part()
        pair.clock.now += 1
        await pair.step()
        assert phase(pair, 0) == phase(pair, 1) == "open"
        assert figures(pair, 1).one("secemb_round_phase_start_timestamp_seconds") == opened
        await a_device(pair, 2).join()  # never sends anything
        pair.clock.now += pair.task.upload_seconds + 1
        published = pair.clock.now
        await pair.finish()
        assert sessions(pair, 0) == {"counted": 2, "left-out": 1}
        assert sessions(pair, 1) == {"counted": 2, "left-out": 0}  # server 1 never heard of the third
        await pair.step()
        assert (phase(pair, 0), phase(pair, 1)) == ("finished", "idle")
        for role in (0, 1):
            assert figures(pair, role).one("secemb_round_number") == 0
            assert figures(pair, role).one("secemb_model_version") == 1
            assert figures(pair, role).one("secemb_model_published_timestamp_seconds") == published
        assert figures(pair, 0).by("secemb_joins_total", "outcome") == {"admitted": 3}


async def test_sessions_of_an_aborted_round_are_counted_as_lost() -> None:
    async with a_pair() as pair:
        await pair.step()
        await a_device(pair, 0).take_part()
        await a_device(pair, 1).fall_silent()  # and is lost
        pair.clock.now += pair.task.upload_seconds + 1
        await pair.finish()
        assert sessions(pair, 0) == {"counted": 0, "aborted": 2}
        assert phase(pair, 0) == phase(pair, 1) == "idle"


async def test_a_server_that_starts_again_shows_the_round_and_the_version_it_had() -> None:
    async with a_pair() as pair:
        await pair.step()
        opened, first = pair.clock.now, figures(pair, 0).one("secemb_model_published_timestamp_seconds")
        pair.clock.now += 5
        for role in (1, 0):
            await pair.start_server(role)
            assert phase(pair, role) == "waiting"
            assert figures(pair, role).one("secemb_round_phase_start_timestamp_seconds") == opened
            assert figures(pair, role).one("secemb_model_published_timestamp_seconds") == first
