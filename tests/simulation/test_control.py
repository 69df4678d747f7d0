"""Operators steer a task: pauses, drains, closed and aborted rounds, on both servers and through crashes."""

import secrets
from dataclasses import replace

import httpx
import pytest
from tests.devices.phone import a_phone, contributed
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.invariants import BrokenError, Invariants
from tests.simulation.machine import Rounds
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import assert_published, filled, last
from tests.unit.privacy_settings import PRIVACY, STEPS

from secemb_party.control import Control
from secemb_party.errors import ControlRefusedError
from secemb_party.ledger import Ledger, RoundRecord, RoundState, What
from secemb_party.operators import Order
from secemb_sdk import NotNow
from secemb_server0.conductor import CLOSING_PATIENCE, Finished, Idle, Open, Paused, Wait
from secemb_server1.responder import Responder
from secemb_shared.messages.spec import EVALUATE, TRAIN

WHY = Order("admin", "the database moves")


async def tell(pair: Pair, role: int, what: What) -> None:
    await pair.parties[role].control.tell(what, WHY)


async def lift(pair: Pair, role: int, what: What) -> None:
    await pair.parties[role].control.lift(what, WHY)


async def end(pair: Pair, role: int, what: What, number: int = 0) -> None:
    await pair.parties[role].control.end_round(what, number, WHY)


async def refused(pair: Pair, role: int, what: What, number: int = 0) -> str:
    with pytest.raises(ControlRefusedError) as caught:
        await end(pair, role, what, number)
    return str(caught.value)


async def knock(pair: Pair) -> httpx.Response:
    answer = await a_device(pair, 9, name=secrets.token_bytes(16)).join()
    assert answer is not None
    return answer


async def rounds(pair: Pair, role: int) -> list[tuple[int, RoundState, str | None]]:
    found = await pair.parties[role].ledger.rounds(pair.task.task_id)
    return [(one.number, one.state, one.reason) for one in reversed(found)]


def phase(pair: Pair, role: int) -> str:
    shown = [
        labels["phase"]
        for name, labels, value in pair.parties[role].metrics.figures()
        if value == 1.0
        if name == "secemb_round_phase"
    ]
    (found,) = shown
    return found


def figure(pair: Pair, role: int, wanted: str) -> float:
    (found,) = (value for name, _, value in pair.parties[role].metrics.figures() if name == wanted)
    return found


async def hindrances(pair: Pair, role: int) -> list[str]:
    return [check.check for check in await pair.parties[role].readiness() if not check.ok]


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_paused_task_ends_its_round_and_begins_no_other_until_it_is_resumed(role: int) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await tell(pair, role, What.PAUSE)
        await pair.exchange()
        late = a_device(pair, 2)
        await late.take_part()  # the round whose deadlines run goes on as if nothing had been said
        await pair.finish()
        await assert_published(pair, [*devices, late])
        for _ in range(5):
            assert await pair.step() == Paused()
            pair.clock.now += 3600
            await pair.exchange()
        assert [phase(pair, one) for one in (0, 1)] == (
            ["paused", "peer-paused"] if role == 0 else ["peer-paused", "paused"]
        )
        assert [len(await rounds(pair, one)) for one in (0, 1)] == [1, 1]
        for one in (0, 1):
            await pair.crash(one)
        await pair.exchange()
        assert await pair.step() == Paused()
        await lift(pair, 1 - role, What.PAUSE)  # which changes nothing: it is not that server's pause
        await pair.exchange()
        assert await pair.step() == Paused()
        await lift(pair, role, What.PAUSE)
        await pair.exchange()
        assert await pair.step() == Open(1)
        assert pair.line.broken == []


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_round_that_waits_for_devices_waits_out_the_pause_with_what_it_has(role: int) -> None:
    async with a_pair() as pair:
        (first,) = await filled(pair, 1)
        pair.clock.now += pair.task.upload_seconds
        assert await pair.step() == Idle()
        await tell(pair, role, What.PAUSE)
        await pair.exchange()
        assert await pair.step() == Paused()
        await pair.exchange()
        assert {phase(pair, one) for one in (0, 1)} == {"paused", "peer-paused"}
        turned_away = await knock(pair)
        assert (turned_away.status_code, turned_away.json()["round"]) == (202, None)
        assert turned_away.json()["paused"] is True
        assert 60 <= int(turned_away.headers["retry-after"]) <= 70
        pair.clock.now += 86_400
        assert 900 <= int((await knock(pair)).headers["retry-after"]) <= 1000
        await lift(pair, role, What.PAUSE)
        await pair.exchange()
        assert await pair.step() == Idle()
        second = a_device(pair, 1)
        await second.take_part()
        assert not pair.parties[0].control.paused
        await pair.finish()
        await assert_published(pair, [first, second])
        assert (await knock(pair)).json()["paused"] is False


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_device_is_told_that_the_task_is_paused_and_takes_part_afterwards(role: int) -> None:
    async with a_pair() as pair:
        phone = a_phone(pair, 0)
        await tell(pair, role, What.PAUSE)
        await pair.exchange()
        await pair.step()
        told = await phone.contribute()
        assert isinstance(told, NotNow)
        assert told.reason == "the operators have paused the task"
        assert told.seconds >= 60
        await lift(pair, role, What.PAUSE)
        await pair.exchange()
        await pair.step()
        await contributed(phone)


@pytest.mark.asyncio
async def test_server_0_waits_for_a_paused_server_1_without_rounds_that_fail_and_says_so() -> None:
    async with a_pair() as pair:
        await tell(pair, 1, What.PAUSE)
        assert await pair.step() == Paused()  # it did not know: server 1 refuses the round that it has just opened
        for _ in range(20):
            assert await pair.step() == Paused()
            await pair.exchange()
        there = pair.parties[0].control.there
        assert there is not None
        assert (there.what, there.reason) == ("pause", "the database moves")
        assert pair.parties[0].metrics.refusals() == {"peer: task-paused": 1}
        assert await rounds(pair, 0) == [(0, RoundState.OPEN, None)]
        assert await rounds(pair, 1) == []
        await lift(pair, 1, What.PAUSE)
        await pair.exchange()
        assert await pair.step() == Idle()
        devices = [a_device(pair, number) for number in range(2)]
        for device in devices:
            await device.take_part()
        await pair.finish()
        await assert_published(pair, devices)


@pytest.mark.asyncio
async def test_a_rollback_is_carried_out_during_a_pause() -> None:
    async with a_pair() as pair:
        await filled(pair, 2)
        await tell(pair, 0, What.PAUSE)
        await pair.finish()
        await pair.server0.leader.roll_back(0, 1, WHY)
        await pair.finish()
        published = await pair.parties[1].ledger.published_version(pair.task.task_id)
        assert published is not None
        assert published.version == 2
        assert await pair.step() == Paused()


@pytest.mark.asyncio
async def test_a_round_is_closed_at_once_when_both_servers_hold_the_smallest_cohort() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 1)
        assert "wait for 1 more, or abort it" in await refused(pair, 0, What.CLOSE)
        assert "ask its operator" in await refused(pair, 1, What.CLOSE)
        assert "is not the current one" in await refused(pair, 0, What.CLOSE, 1)
        slow, lost = a_device(pair, 1), a_device(pair, 2)
        for device in (slow, lost):
            await device.join()
            await device.put(0, KEYS)
            await device.put(0, UPDATE)
        await end(pair, 0, What.CLOSE)
        await end(pair, 0, What.CLOSE)  # again changes nothing
        decision = await pair.step()
        assert isinstance(decision, Wait)  # server 1 holds one session only
        assert decision.until < pair.clock.now + 1
        await pair.crash(0)
        for what in (KEYS, UPDATE):
            await slow.put(1, what)
        pair.clock.now = decision.until
        await pair.finish()
        assert pair.clock.now < 1000 + pair.task.join_seconds
        await assert_published(pair, [*devices, slow])
        assert [one.what for one in await pair.parties[0].ledger.actions()] == ["close"]
        assert "is not the current one" in await refused(pair, 0, What.CLOSE)


@pytest.mark.asyncio
async def test_no_round_is_closed_where_devices_toss_a_coin_and_a_drain_lets_them_join() -> None:
    tossed = replace(PRIVACY, sampling_rate="0.5")
    async with a_pair(privacy=tossed, fraction_bits=12, bound=STEPS) as pair:
        await pair.step()
        assert "chance alone" in await refused(pair, 0, What.CLOSE)
        await tell(pair, 0, What.DRAIN)
        assert isinstance(await pair.step(), Wait)
        assert (await knock(pair)).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_an_aborted_round_ends_on_both_servers_for_the_operators_reason(role: int) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 3)
        truth = Invariants(pair, devices, given_up={devices[0].spec.digest})
        await end(pair, role, What.ABORT)
        await pair.exchange()
        await pair.step()
        await truth.check_end()
        why = f"by the operator of server {role}: the database moves"
        for one in (0, 1):
            assert await rounds(pair, one) == [(0, RoundState.ABORTED, why)]
            late = await devices[0].put(one, KEYS, b"x" * len(devices[0].body(one, KEYS)))
            assert late is not None
            assert late.status_code in {400, 409, 410}
        assert await pair.step() == Open(1)
        recorded = await pair.parties[role].ledger.actions()
        assert [(one.what, one.by, one.reason, one.data) for one in recorded] == [
            ("abort", "admin", "the database moves", {"round": 0})
        ]
        assert await pair.parties[1 - role].ledger.actions() == []
        assert "is not the current one" in await refused(pair, role, What.ABORT)


@pytest.mark.asyncio
@pytest.mark.parametrize("at", [RoundState.OPEN, RoundState.SEALING])
async def test_an_abort_at_server_1_reaches_a_server_0_that_has_gone_on(at: RoundState) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        pair.clock.now += pair.task.join_seconds
        if at is RoundState.SEALING:
            await pair.step()
        assert (await last(pair, 0)).state is at
        await end(pair, 1, What.ABORT)
        await pair.finish()  # without an exchange: the answer to the next call says so
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await last(pair, 0)).reason == "by the operator of server 1: the database moves"


@pytest.mark.asyncio
@pytest.mark.parametrize("complete", [2, 1])  # enough for a seal, or too few
async def test_an_abort_that_comes_between_the_leaders_look_and_the_seal_still_counts(
    complete: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, complete)
        await a_device(pair, 5).join()  # and is lost
        completion = pair.server0.leader._completion
        honest = completion.close

        async def close(record: RoundRecord) -> RoundRecord:
            await end(pair, 0, What.ABORT)
            return await honest(record)

        monkeypatch.setattr(completion, "close", close)
        pair.clock.now += pair.task.upload_seconds
        await pair.finish()
        aborted = {devices[0].spec.digest}
        await Invariants(pair, devices, given_up=aborted, acknowledged_aborts=aborted).check_end()
        why = "by the operator of server 0: the database moves"
        assert await rounds(pair, 0) == await rounds(pair, 1) == [(0, RoundState.ABORTED, why)]


@pytest.mark.asyncio
@pytest.mark.parametrize("crashing", [0, 1])
@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("after", [False, True])
async def test_an_abort_that_is_acknowledged_survives_a_crash_at_any_write(
    crashing: int, writes: int, after: bool
) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 0, What.ABORT)
        pair.fuses[crashing].light(writes, after=after)
        for _ in range(4):
            await pair.step()
        await pair.finish()
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await rounds(pair, 0))[0] == (
            0,
            RoundState.ABORTED,
            "by the operator of server 0: the database moves",
        )


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_drained_server_finishes_its_round_takes_no_session_and_says_when_to_stop_it(role: int) -> None:
    async with a_pair(cohort=4) as pair:
        devices = await filled(pair, 1)
        second = a_device(pair, 1)
        await second.join()
        control = pair.parties[role].control
        await tell(pair, role, What.DRAIN)
        await pair.exchange()
        assert (await knock(pair)).status_code == 202  # at once, before the leader has looked
        assert isinstance(await pair.step(), Wait)
        assert (await knock(pair)).status_code == 202
        again = await second.join()
        assert again is not None
        assert again.status_code == 200  # it has joined already
        assert await control.unfinished() == "round 0 is open"
        assert await hindrances(pair, role) == []  # who has joined must still reach it
        assert figure(pair, role, "secemb_draining") == 1
        assert figure(pair, role, "secemb_drained") == 0
        await second.take_part()
        await pair.finish()
        await assert_published(pair, [*devices, second])
        assert pair.clock.now < 1000 + pair.task.join_seconds  # nobody else could have joined
        assert await control.unfinished() is None
        assert await hindrances(pair, role) == ["drained"]
        assert figure(pair, role, "secemb_drained") == 1
        assert await pair.step() == Paused()
        await pair.crash(role)
        assert figure(pair, role, "secemb_drained") == 0
        assert pair.parties[role].control.drain is None
        events = await pair.parties[role].ledger.recent_events("control")
        assert [event.data["what"] for event in events] == ["drain end", "drain"]
        assert [one.what for one in await pair.parties[role].ledger.actions()] == ["drain"]
        await pair.exchange()
        assert await pair.step() == Open(1)


@pytest.mark.asyncio
async def test_server_1_is_not_safe_to_stop_before_server_0_knows() -> None:
    async with a_pair() as pair:
        await pair.step()
        pair.clock.now += 1
        await tell(pair, 1, What.DRAIN)
        assert "server 0 has not called" in (await pair.parties[1].control.unfinished() or "")
        await pair.exchange()
        assert await pair.parties[1].control.unfinished() is None


@pytest.mark.asyncio
async def test_an_instruction_again_changes_nothing_and_taking_back_none_is_not_recorded() -> None:
    async with a_pair() as pair:
        control, ledger = pair.parties[0].control, pair.parties[0].ledger
        await control.lift(What.PAUSE, WHY)
        await control.tell(What.PAUSE, WHY)
        await control.tell(What.PAUSE, Order("other", "another reason"))
        assert control.pause is not None
        assert (control.pause.by, control.pause.reason) == ("admin", "the database moves")
        await control.lift(What.PAUSE, Order("other"))
        assert [(one.by, one.what) for one in await ledger.actions()] == [("other", "resume"), ("admin", "pause")]


@pytest.mark.asyncio
async def test_a_last_evaluation_without_devices_ends_the_task_after_a_day() -> None:
    async with a_pair(rounds=1, choose_kind=[TRAIN, EVALUATE, TRAIN].__getitem__) as pair:
        await filled(pair, 2)
        await pair.finish()
        assert await pair.step() == Open(1, EVALUATE)
        pair.clock.now += CLOSING_PATIENCE - 1
        assert await pair.step() == Idle()
        pair.clock.now += 1
        await pair.step()
        assert await pair.step() == Finished()
        for role in (0, 1):
            record = await last(pair, role)
            assert (record.state, record.kind) == (RoundState.ABORTED, EVALUATE)
            assert record.reason == "too few devices came to the last evaluation within a day"


def steered_machine() -> Rounds:
    """Return a machine whose round of two devices is about to be sealed."""
    machine = Rounds()
    machine.start(count=2)
    return machine


def go_on(machine: Rounds) -> None:
    for _ in range(8):
        machine.lead_on(steps=1)
        machine.everything_holds()


def test_the_machine_finds_a_server_1_that_takes_part_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Responder, "_check_pause", lambda _: None)
    machine = steered_machine()
    machine.pause(role=1)
    machine.everything_holds()
    with pytest.raises(BrokenError, match="a round began at server 1 while it was paused"):
        go_on(machine)
    machine.truth.paused.clear()
    machine.teardown()


def test_the_machine_finds_a_server_0_that_forgets_a_pause_in_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(control: Control) -> None:
        await control._ledger.lift(control._task.task_id, What.PAUSE, None, 0.0)

    machine = steered_machine()
    machine.pause(role=0)
    monkeypatch.setattr(Control, "start", forget)
    machine.crash(role=0)
    with pytest.raises(BrokenError, match="a round began at server 0 while it was paused"):
        go_on(machine)
    machine.truth.paused.clear()
    machine.teardown()


def test_the_machine_finds_an_abort_that_is_acknowledged_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object, **__: object) -> None:
        return

    monkeypatch.setattr(Ledger, "instruct", forget)
    machine = steered_machine()
    machine.abort(role=0)
    with pytest.raises(BrokenError, match="a round was sealed after an operator had aborted it"):
        go_on(machine)
    machine.truth.acknowledged_aborts.clear()
    machine.teardown()


def test_the_machine_finds_a_drain_that_lets_devices_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Control, "draining", property(lambda _: False))
    machine = steered_machine()
    machine.drain(role=0)
    with pytest.raises(AssertionError, match="a session joined a server that is drained"):
        machine.join(twist=None)
    machine.teardown()


@pytest.mark.asyncio
async def test_an_abort_on_one_side_is_found_out() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await pair.server0.leader._completion.abort_here(await last(pair, 0), "alone")
        with pytest.raises(BrokenError, match="ended in two ways"):
            await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()


@pytest.mark.asyncio
async def test_an_abort_that_no_operator_wanted_is_found_out() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 0, What.ABORT)
        await pair.step()
        with pytest.raises(BrokenError, match="aborted with enough acknowledged sessions"):
            await Invariants(pair, devices).check()


@pytest.mark.asyncio
async def test_a_round_that_both_would_end_ends_for_the_reason_of_the_first() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 1, What.ABORT)
        await end(pair, 0, What.ABORT)
        await pair.step()
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await last(pair, 0)).reason == "by the operator of server 1: the database moves"
        assert await pair.step() == Open(1)
