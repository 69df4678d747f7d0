"""Wrong clocks: both servers see how far they differ, no round gets stuck, and no relay key is made or lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import IDENTITY, RELAYED, Clock, Pair, a_pair

from secemb_party.ledger import RoundState
from secemb_party.metrics import Metrics
from secemb_party.peer_clock import FORGET_SECONDS, TIME_HEADER, WARN_SECONDS, PeerClock
from secemb_party.tickets import CLOCK_TOLERANCE
from secemb_server0.conductor import Wait
from secemb_server1.relay_keys import RelayKeys

DAY = 86_400.0


def skew_of(metrics: Metrics) -> float:
    return {name: value for name, _, value in metrics.figures()}["secemb_clock_skew_seconds"]


def a_peer_clock(clock: Clock, steady: Clock) -> tuple[PeerClock, Metrics]:
    metrics = Metrics()
    return PeerClock(clock, steady, metrics), metrics


@pytest.mark.parametrize(
    ("theirs", "took", "skew"),
    [
        ("1000.000", 0.0, 0.0),
        ("1090.500", 0.0, 90.5),
        ("910.000", 0.0, -90.0),
        ("910.000", 60.0, -30.0),  # a long call: the answer may be as old as the call
        ("990.000", 60.0, 0.0),
        ("1020.000", 60.0, 20.0),  # no call explains an answer from the future
    ],
)
def test_what_the_length_of_a_call_explains_is_no_skew(theirs: str, took: float, skew: float) -> None:
    peer, metrics = a_peer_clock(Clock(1000.0), Clock(5.0))
    peer.compare({TIME_HEADER: theirs}, took=took)
    assert peer.skew() == pytest.approx(skew)
    assert skew_of(metrics) == pytest.approx(skew)


@pytest.mark.parametrize("text", ["", "now", "-5", "1e9", "inf", "nan", "1" * 40, "१२३४"])
def test_a_time_that_is_none_is_ignored(text: str) -> None:
    peer, _ = a_peer_clock(Clock(1000.0), Clock(5.0))
    peer.compare({TIME_HEADER: text})
    assert not peer.compared()


def test_a_difference_is_told_once_when_it_begins_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(1000.0)
    peer, _ = a_peer_clock(clock, Clock(5.0))
    for ahead in (0, WARN_SECONDS - 1, WARN_SECONDS + 1, WARN_SECONDS + 2, 0, 0):
        peer.compare({TIME_HEADER: f"{clock.now + ahead:.3f}"})
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "clocks differ" in caplog.records[0].getMessage()
    assert "agree again" in caplog.records[1].getMessage()


def test_a_difference_is_forgotten_when_the_servers_have_not_talked_for_a_while() -> None:
    steady = Clock(5.0)
    peer, _ = a_peer_clock(Clock(1000.0), steady)
    peer.compare({TIME_HEADER: "9000.0"})
    assert peer.fault() is not None
    assert len(peer.times()) == 2
    steady.now += FORGET_SECONDS
    assert peer.fault() is None
    assert peer.times() == [1000.0]


@asynccontextmanager
async def apart(seconds: float, **task: object) -> AsyncIterator[Pair]:
    """Run a pair whose server 1 has a clock that is ahead by so much."""
    async with a_pair(**task) as pair:  # type: ignore[arg-type]
        party = pair.parties[1]
        ahead = Ahead(pair.clock, seconds)
        party.clock = party.peer_clock._clock = party.intake._clock = ahead
        pair.server1.peer.user_middleware[0].kwargs["clock"] = ahead
        yield pair


class Ahead:
    """Another clock, and how far it is wrong."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def __call__(self) -> float:
        return self.clock.now + self.seconds


async def faults(pair: Pair, role: int) -> list[str]:
    return [check.hint for check in await pair.parties[role].readiness() if not check.ok]


@pytest.mark.asyncio
@pytest.mark.parametrize("seconds", [100.0, -100.0])
async def test_beyond_what_tickets_tolerate_neither_server_is_ready_and_both_say_why(seconds: float) -> None:
    async with apart(seconds) as pair:
        await pair.step()
        words = ("ahead", "behind") if seconds > 0 else ("behind", "ahead")
        for role in (0, 1):
            (hint,) = await faults(pair, role)
            assert words[role] in hint
            assert "NTP" in hint
            assert abs(skew_of(pair.parties[role].metrics)) == pytest.approx(100.0, abs=6.0)


@pytest.mark.asyncio
@pytest.mark.parametrize("seconds", [CLOCK_TOLERANCE - 10, 10 - CLOCK_TOLERANCE])
async def test_within_what_tickets_tolerate_a_round_is_published(seconds: float) -> None:
    async with apart(seconds) as pair:
        await pair.step()
        assert await faults(pair, 0) == await faults(pair, 1) == []
        pair.clock.now += pair.task.join_seconds - 1
        for number in range(2):
            await a_device(pair, number).take_part()
        await pair.finish()
        assert (await pair.parties[0].ledger.rounds(pair.task.task_id))[0].state is RoundState.PUBLISHED


@pytest.mark.asyncio
async def test_a_round_that_a_clock_running_ahead_has_opened_ends_in_its_time() -> None:
    async with a_pair() as pair:
        steady = Clock(50.0)
        pair.parties[0].steady = steady
        pair.server0.leader.timer._steady = steady
        pair.clock.now += DAY
        await pair.step()
        await a_device(pair, 0).fall_silent()  # and is lost
        await pair.step()
        for restarted in (False, True):
            pair.clock.now -= DAY / 2  # NTP sets it right
            if restarted:
                await pair.crash(0)
                pair.parties[0].steady = pair.server0.leader.timer._steady = steady
            decision = await pair.step()
            assert isinstance(decision, Wait)
            assert decision.until <= steady.now + pair.task.upload_seconds
        steady.now += pair.task.upload_seconds
        for _ in range(3):
            await pair.step()
        rounds = await pair.parties[0].ledger.rounds(pair.task.task_id)
        assert [one.state for one in rounds if one.number == 0] == [RoundState.ABORTED]


@pytest.mark.asyncio
async def test_a_clock_that_is_set_forward_ends_no_round_early() -> None:
    async with a_pair() as pair:
        steady = Clock(50.0)
        pair.parties[0].steady = pair.server0.leader.timer._steady = steady
        await pair.step()
        await a_device(pair, 0).join()
        pair.clock.now += DAY
        assert isinstance(await pair.step(), Wait)


@pytest.fixture
def keys(tmp_path: Path) -> RelayKeys:
    made = RelayKeys(tmp_path / "relay-keys.json", IDENTITY, bytes(32))
    made.announcement(1000 * DAY)
    return made


@pytest.mark.parametrize("jump", [80 * DAY, 400 * DAY, -1 * DAY, -400 * DAY])
def test_a_wrong_clock_makes_and_erases_no_relay_key(keys: RelayKeys, jump: float) -> None:
    (first,) = keys.held()
    right = 1001 * DAY
    keys.announcement(right + jump, right)  # the other server's clock is right
    keys.announcement(right, right + jump)  # or this one's
    keys.announcement(right + jump, sure=False)  # or the servers have not talked yet
    (held,) = keys.held()
    assert held.announced == first.announced
    assert held.private is not None
    assert keys.private(first.announced.key_id, right + jump, right) is held.private


def test_when_both_clocks_say_so_the_next_key_is_made_and_the_old_one_erased(keys: RelayKeys) -> None:
    keys.announcement(1061 * DAY, 1070 * DAY)
    assert len(keys.held()) == 2
    keys.announcement(1100 * DAY)
    assert [key.private is None for key in keys.held()] == [True, False]


@pytest.mark.asyncio
async def test_a_relaying_pair_with_a_wrong_clock_keeps_its_key() -> None:
    async with apart(0.0, **RELAYED) as pair:
        await pair.step()
        held = RelayKeys(pair.folder / "server1" / "relay-keys.json", IDENTITY, pair.task.task_id)
        await a_device(pair, 0).join()
        before = [key.announced for key in held.held()]
        assert len(before) == 1
        ahead = pair.parties[1].clock
        assert isinstance(ahead, Ahead)
        for jump in (70 * DAY, 200 * DAY, -200 * DAY):
            ahead.seconds = jump
            pair.clock.now += 100  # server 0 asks for the key again
            await a_device(pair, 1).join()
        assert [key.announced for key in held.held()] == before
        assert all(key.private is not None for key in held.held())
