"""Devices that join and then say nothing: how little of a round they can hold.

Each rule has its fault: with the rule switched off, the same fleet gets no round, or gets it late.
"""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.devices.scripted import KEYS, UPDATE, Device
from tests.simulation.pair import Pair, a_pair

from secemb_party.ledger import Conduct, RoundRecord, RoundState
from secemb_server0.conductor import Idle, Wait
from secemb_server0.seats import SeatRules, Seats

pytestmark = pytest.mark.asyncio

COHORT, SILENT = 40, 40
LONG: dict[str, Any] = {"cohort": COHORT, "min_cohort": 20, "join_seconds": 60, "upload_seconds": 600, "items": 64}
NEVER = SeatRules(seconds=1e6, share=1.0, grace=0.0, stragglers=1e6)  # a round waits for everybody


@asynccontextmanager
async def fleet(rules: SeatRules | None = None, **task: object) -> AsyncIterator[Pair]:
    async with a_pair(open_enrolment=False, seat_rules=rules, **LONG | task) as pair:
        await pair.step()
        yield pair


async def a_device(pair: Pair, who: str, session: str = "") -> Device:
    """Return a device with a token of its own, and a new session in each round."""
    if await pair.parties[0].ledger.token(hashlib.sha256(who.encode()).digest()) is None:
        await pair.enrol(who)
    name = hashlib.sha256(f"{who} {session} {pair.clock.now}".encode()).digest()[:16]
    return Device(pair, name, token=who, power=int(hashlib.sha256(who.encode()).hexdigest(), 16) % 8)


async def joins(device: Device) -> bool:
    answer = await device.join()
    assert answer is not None
    assert answer.status_code in {200, 202}, answer.text
    return answer.status_code == 200


async def sends(device: Device, what: str, roles: tuple[int, ...] = (0, 1)) -> list[int]:
    answers = [await device.put(role, what) for role in roles]
    return [one.status_code for one in answers if one is not None]


async def honest(pair: Pair, count: int, first: int = 0) -> int:
    """Let honest devices do everything; return how many were let in and acknowledged by both servers."""
    done = 0
    for number in range(first, first + count):
        device = await a_device(pair, f"honest {number}")
        if await joins(device):
            both = await sends(device, KEYS) + await sends(device, UPDATE)
            done += both == [200] * 4
    return done


async def current(pair: Pair) -> RoundRecord:
    record = await pair.parties[0].ledger.last_round(pair.task.task_id)
    assert record is not None
    return record


async def conduct(pair: Pair, who: str) -> Conduct:
    token = await pair.parties[0].ledger.token(hashlib.sha256(who.encode()).digest())
    assert token is not None
    return token.conduct


async def passes(pair: Pair, until: Callable[[RoundRecord], bool], *, longest: float) -> float:
    """Let time go on until the last round is as wanted; return how many seconds that took, `longest` at most."""
    start = pair.clock.now
    for _ in range(3000):  # a session that server 1 never gets is waited for in small steps
        if until(await current(pair)) or pair.clock.now - start >= longest:
            return pair.clock.now - start
        decision = await pair.step()
        match decision:
            case Wait(then):
                pair.clock.now = min(then, start + longest)
            case Idle():
                pair.clock.now = start + longest
            case _:
                pass
    raise AssertionError("the leader does not rest")


def published(record: RoundRecord) -> bool:
    return record.state is RoundState.PUBLISHED


# Seats without keys.


@pytest.mark.parametrize("kept_out", [False, True], ids=["a seat needs keys", "joining takes one"])
async def test_forty_tokens_that_join_and_say_nothing_keep_nobody_out(
    kept_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept_out:
        monkeypatch.setattr(Seats, "waiting", COHORT)
    async with fleet() as pair:
        for number in range(SILENT):
            assert await joins(await a_device(pair, f"silent {number}"))
        assert await honest(pair, 30) == (0 if kept_out else 30)
        if not kept_out:
            assert (
                await passes(pair, published, longest=590) <= 60 + 6
            )  # the join window, and the last who may send keys
            assert len((await current(pair)).sealed_sessions or ()) == 30


@pytest.mark.parametrize("rules", [None, NEVER], ids=["some seconds", "until the deadline"])
async def test_who_joins_last_and_says_nothing_is_waited_for_some_seconds(rules: SeatRules | None) -> None:
    async with fleet(rules) as pair:
        assert await honest(pair, 20) == 20
        pair.clock.now += 59
        assert await joins(await a_device(pair, "silent"))
        took = await passes(pair, published, longest=700)
        assert took <= 1 + 5 if rules is None else took >= 541


@pytest.mark.parametrize("early", [True, False], ids=["before the body", "in the transaction"])
async def test_keys_that_come_when_all_seats_are_taken_are_refused_and_leave_no_trace(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not early:  # the server has not noticed yet
        monkeypatch.setattr("secemb_server0.door.Door.is_full", lambda _: False)
    async with fleet(cohort=2, min_cohort=2) as pair:
        devices = [await a_device(pair, f"device {number}") for number in range(4)]
        for one in devices:
            assert await joins(one)
        for one in devices[:2]:
            assert await sends(one, KEYS) == [200, 200]
        answer = await devices[2].put(0, KEYS)
        assert answer is not None
        assert (answer.status_code, answer.json()["type"]) == (410, "urn:secemb:problem:round-full")
        assert int(answer.headers["retry-after"]) >= 1
        assert await sends(devices[3], KEYS) == [410, 200]  # server 1 does not know seats
        assert await sends(devices[3], UPDATE) == [404, 200]
        assert await sends(devices[0], KEYS) == [200, 200]  # the same bytes again
        assert not await joins(await a_device(pair, "fifth"))
        assert [(await conduct(pair, f"device {number}")).silent for number in (2, 3)] == [0, 0]
        assert (await pair.parties[0].ledger.counts((await current(pair)).round_id)).keys == 2
        for one in devices[:2]:
            assert await sends(one, UPDATE) == [200, 200]
        await pair.finish()
        record = await current(pair)
        assert published(record)
        assert record.sealed_sessions == tuple(sorted(one.name for one in devices[:2]))


async def test_a_round_remembers_so_many_who_wait_and_forgets_those_who_have_lapsed_first() -> None:
    async with fleet(cohort=2, min_cohort=2, items=16) as pair:
        most = pair.server0.leader.seats.waiting
        slow = await a_device(pair, "slow")
        assert await joins(slow)
        pair.clock.now += 6
        for number in range(most):  # the last one takes the place of the one that has lapsed
            assert await joins(await a_device(pair, f"silent {number}"))
        assert not await joins(await a_device(pair, "one more"))
        assert await sends(slow, KEYS, (0,)) == [404]
        assert (await pair.parties[0].ledger.counts((await current(pair)).round_id)).admitted == most
        pair.clock.now += 6
        assert await honest(pair, 2) == 2


async def test_a_seat_that_has_lapsed_is_its_devices_again_while_there_is_room() -> None:
    async with fleet(cohort=2, min_cohort=2) as pair:
        slow, quick = await a_device(pair, "slow"), await a_device(pair, "quick")
        assert await joins(slow)
        pair.clock.now += 6
        await pair.step()
        assert await joins(quick)
        assert await sends(slow, KEYS) == [200, 200]  # one seat was free
        assert await sends(quick, KEYS) == [200, 200]
        assert not await joins(await a_device(pair, "third"))
        for one in (slow, quick):
            assert await sends(one, UPDATE) == [200, 200]
        await pair.finish()
        assert published(await current(pair))


async def test_keys_that_come_when_the_seat_has_lapsed_and_all_are_taken_are_refused_and_no_silence() -> None:
    async with fleet(cohort=2, min_cohort=2) as pair:
        slow = await a_device(pair, "slow")
        assert await joins(slow)
        pair.clock.now += 6
        await pair.step()
        assert await honest(pair, 2) == 2
        assert await sends(slow, KEYS, (0,)) == [410]
        assert (await conduct(pair, "slow")).silent == 0
        await pair.finish()
        assert published(await current(pair))


async def test_a_device_that_has_lost_its_seat_and_its_home_may_join_the_same_round_again() -> None:
    """Otherwise a fleet that is just large enough would wait for it for ever."""
    async with fleet(cohort=2, min_cohort=2) as pair:
        lost = await a_device(pair, "phone")
        assert await joins(lost)
        again = await a_device(pair, "phone", "after a reset")
        assert not await joins(again)  # its seat is its own for now
        pair.clock.now += 6
        await pair.step()
        assert await joins(again)
        assert await sends(lost, KEYS, (0,)) == [404]  # one session a device
        assert await sends(again, KEYS) + await sends(again, UPDATE) == [200] * 4
        assert await honest(pair, 1) == 1
        await pair.finish()
        record = await current(pair)
        assert published(record)
        assert again.name in (record.sealed_sessions or ())
        assert len(record.sealed_sessions or ()) == 2


# Seats with keys and without an update.


@pytest.mark.parametrize("rules", [None, NEVER], ids=["a share seals", "it does not"])
@pytest.mark.parametrize(
    "sent", [(KEYS,), (KEYS, UPDATE)], ids=["keys and nothing else", "an update to one server only"]
)
async def test_one_silent_token_costs_a_round_the_grace_and_not_its_deadline(
    rules: SeatRules | None, sent: tuple[str, ...]
) -> None:
    async with fleet(rules, upload_seconds=150) as pair:
        silent = await a_device(pair, "silent")
        assert await joins(silent)
        assert await sends(silent, KEYS) == [200, 200]
        if UPDATE in sent:
            assert await sends(silent, UPDATE, (0,)) == [200]
        assert await honest(pair, 25) == 25
        took = await passes(pair, published, longest=200)
        assert took <= 60 + 10 + 1 if rules is None else took >= 150
        assert len((await current(pair)).sealed_sessions or ()) == 25


@pytest.mark.parametrize("factor", [2.0, 1e6], ids=["a multiple", "until the deadline"])
async def test_where_a_third_says_nothing_a_round_waits_a_multiple_of_what_the_others_took(factor: float) -> None:
    async with fleet(SeatRules(stragglers=factor)) as pair:
        for number in range(10):
            device = await a_device(pair, f"silent {number}")
            assert await joins(device)
            assert await sends(device, KEYS) == [200, 200]
        assert await honest(pair, 25) == 25
        took = await passes(pair, published, longest=700)
        assert 180 <= took <= 181 if factor == 2.0 else took >= 600  # the join window is 60
        assert len((await current(pair)).sealed_sessions or ()) == 25


async def test_where_most_say_nothing_a_round_waits_until_its_deadline() -> None:
    async with fleet(min_cohort=10) as pair:
        for number in range(20):
            device = await a_device(pair, f"silent {number}")
            assert await joins(device)
            assert await sends(device, KEYS) == [200, 200]
        assert await honest(pair, 15) == 15
        assert await passes(pair, published, longest=700) >= 600


async def test_an_upload_after_the_seal_is_late_and_not_silent() -> None:
    async with fleet() as pair:
        late = await a_device(pair, "late")
        assert await joins(late)
        assert await sends(late, KEYS) == [200, 200]
        assert await honest(pair, 25) == 25
        await passes(pair, published, longest=700)
        assert (await conduct(pair, "late")).silent == 1
        assert await sends(late, UPDATE) == [410, 410]
        assert (await conduct(pair, "late")).silent == 0


# More seats than the cohort.


@pytest.mark.parametrize("over", [True, False], ids=["more seats", "as many as the cohort"])
async def test_where_devices_drop_out_a_round_has_more_seats_and_is_filled_all_the_same(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not over:
        monkeypatch.setattr(Seats, "learn", lambda *_: None)
    sealed = []
    async with fleet(cohort=10, min_cohort=5, items=16) as pair:
        for round_ in range(3):
            for number in range(14):  # five of fourteen send keys and no more
                device = await a_device(pair, f"{round_} {number}")
                if await joins(device) and await sends(device, KEYS) == [200, 200] and number % 3:
                    assert await sends(device, UPDATE) == [200, 200]
            await passes(pair, published, longest=700)
            sealed.append(len((await current(pair)).sealed_sessions or ()))
            pair.clock.now += 600  # the time to upload is over: it is known who came too late
            await pair.step()
    assert sealed == ([6, 9, 9] if over else [6, 6, 6])


async def test_a_round_takes_no_more_updates_than_its_cohort_and_who_comes_too_late_is_not_silent() -> None:
    async with fleet(cohort=4, min_cohort=2, items=16) as pair:
        pair.server0.leader.seats.limit = 6
        await pair.step()
        devices = [await a_device(pair, f"device {number}") for number in range(6)]
        for one in devices:
            assert await joins(one)
            assert await sends(one, KEYS) == [200, 200]
        assert not await joins(await a_device(pair, "seventh"))
        found = [(await sends(one, UPDATE))[0] for one in devices]
        assert found == [200] * 4 + [410] * 2
        await pair.finish()
        assert len((await current(pair)).sealed_sessions or ()) == 4
        assert [(await conduct(pair, f"device {number}")).silent for number in range(6)] == [0] * 6


async def test_who_was_cut_off_by_a_seal_is_not_taken_for_one_who_drops_out() -> None:
    """Otherwise every early seal would lead to more seats, and these to more who are cut off."""
    async with fleet(cohort=10, min_cohort=5, items=16) as pair:
        late = await a_device(pair, "late")
        assert await joins(late)
        assert await sends(late, KEYS) == [200, 200]
        assert await honest(pair, 9) == 9
        await passes(pair, published, longest=700)
        assert await sends(late, UPDATE, (0,)) == [410]
        pair.clock.now += 600
        await pair.step()
        assert pair.server0.leader.seats.limit == 10


# Tokens that stay silent.


@pytest.mark.parametrize("pardon", [False, True], ids=["they wait", "they do not"])
async def test_tokens_that_stay_silent_are_let_in_ever_more_rarely(
    pardon: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pardon:
        monkeypatch.setattr("secemb_server0.join.back_off", lambda *_: 0.0)
    let_in = 0
    async with fleet(cohort=4, min_cohort=2, items=16) as pair:
        for round_ in range(8):
            silent = await a_device(pair, "silent", str(round_))
            if await joins(silent):
                let_in += 1
                await sends(silent, KEYS)
            assert await honest(pair, 3) == 3  # whatever happens to the other, they are never held back
            await passes(pair, published, longest=700)
            await pair.step()
        assert let_in == (8 if pardon else 4)
        found = await conduct(pair, "silent")
        assert (found.joined, found.completed, found.silent) == (let_in, 0, let_in)
        quiet = await conduct(pair, "honest 0")
        assert (quiet.joined, quiet.completed, quiet.silent) == (8, 8, 0)


async def test_a_device_whose_round_was_aborted_has_not_been_silent() -> None:
    async with fleet(cohort=4, min_cohort=3, items=16) as pair:
        lost = await a_device(pair, "lost")
        assert await joins(lost)
        assert await sends(lost, KEYS) == [200, 200]
        assert await honest(pair, 1) == 1
        await passes(pair, lambda record: record.ended, longest=700)
        assert (await current(pair)).state is RoundState.ABORTED
        assert (await conduct(pair, "honest 0")).silent == 0
        assert (await conduct(pair, "lost")).silent == 1


async def test_a_session_that_has_joined_may_ask_again_however_silent_its_device_was() -> None:
    async with fleet(cohort=4, min_cohort=2, items=16) as pair:
        device = await a_device(pair, "phone")
        assert await joins(device)
        for _ in range(5):
            assert await joins(device)  # the answer may have been lost
        assert (await conduct(pair, "phone")).joined == 1
