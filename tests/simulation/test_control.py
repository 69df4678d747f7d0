"""Operators steer a task: pauses, drains and closed rounds, on both servers."""

from dataclasses import replace

import pytest
from tests.devices.phone import a_phone, contributed
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.pair import a_pair
from tests.simulation.round_states import assert_published, filled, last
from tests.simulation.steering import WHY, end, figure, hindrances, knock, lift, phase, refused, rounds, tell
from tests.unit.privacy_settings import PRIVACY, STEPS

from secemb_party.ledger import RoundState, What
from secemb_party.operators import Order
from secemb_sdk import NotNow
from secemb_server0.conductor import CLOSING_PATIENCE, Finished, Idle, Open, Paused, Wait
from secemb_shared.messages.spec import EVALUATE, TRAIN


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
        assert await pair.step() == Paused()  # it did not know, and asks before it opens the first round
        for _ in range(20):
            assert await pair.step() == Paused()
            await pair.exchange()
        there = pair.parties[0].control.there
        assert there is not None
        assert (there.what, there.reason) == ("pause", "the database moves")
        assert pair.parties[0].metrics.refusals() == {}
        assert await rounds(pair, 0) == []
        assert await rounds(pair, 1) == []
        await lift(pair, 1, What.PAUSE)
        await pair.exchange()
        assert isinstance(await pair.step(), Open)
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
        assert "wait for 1 more" in await refused(pair, 0, What.CLOSE)
        assert "ask its operator" in await refused(pair, 1, What.CLOSE)
        assert "is not the current round" in await refused(pair, 0, What.CLOSE, 1)
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
        assert "is not the current round" in await refused(pair, 0, What.CLOSE)


@pytest.mark.asyncio
async def test_no_round_is_closed_where_devices_toss_a_coin_and_a_drain_lets_them_join() -> None:
    tossed = replace(PRIVACY, sampling_rate="0.5")
    async with a_pair(privacy=tossed, fraction_bits=12, bound=STEPS) as pair:
        await pair.step()
        assert "sampled at random" in await refused(pair, 0, What.CLOSE)
        await tell(pair, 0, What.DRAIN)
        assert isinstance(await pair.step(), Wait)
        assert (await knock(pair)).status_code == 200


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
            assert record.reason == "too few devices joined the last evaluation within a day"
