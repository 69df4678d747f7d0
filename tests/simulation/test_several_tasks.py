"""Two servers with several tasks: each has its own rounds, models and budget, and none waits for another."""

import secrets

import pytest
from tests.devices.phone import a_phone, contributed
from tests.devices.scripted import KEYS, UPDATE, Device, a_device
from tests.simulation.faults import CrashedError
from tests.simulation.pair import RELAYED, a_task
from tests.simulation.round_states import assert_published, last
from tests.simulation.town import ORDER, Town, TownTask, a_town

from secemb_party.ledger import RoundState, TaskState
from secemb_party.tenancy.errors import TaskControlError
from secemb_server0.conductor import Idle, Open, Paused

pytestmark = pytest.mark.asyncio
AFTER = {"start": "running", "stop": "stopped", "archive": "archived"}
FIRST, SECOND = a_task(name="first"), a_task(name="second", items=20, **RELAYED)


def own(pair: TownTask, number: int) -> Device:
    return a_device(pair, number, name=secrets.token_bytes(16))


async def fill(pair: TownTask, count: int = 2) -> list[Device]:
    assert isinstance(await pair.step(), Open)
    devices = [own(pair, number) for number in range(count)]
    for device in devices:
        await device.take_part()
    return devices


async def test_two_tasks_run_rounds_at_the_same_time_each_with_its_own_sum_and_model() -> None:
    async with a_town(FIRST) as town:
        one, two = town.of(FIRST), await town.start(SECOND)
        ours, theirs = await fill(one), await fill(two, 3)
        await one.finish()
        await assert_published(one, ours)
        assert (await last(two, 0)).state is RoundState.OPEN  # the other task's round goes on as if it were alone
        await two.finish()
        await assert_published(two, theirs)
        for role in (0, 1):
            ledger = town.hosts[role].ledger
            events = await ledger.recent_events("round", task=FIRST.task_id)
            assert len(events) == len(await ledger.recent_events("round")) / 2


async def test_devices_of_both_transports_take_part_in_their_task() -> None:
    async with a_town(FIRST) as town:
        one, two = town.of(FIRST), await town.start(SECOND)
        for pair, relayed in ((one, False), (two, True)):  # the second task is a relayed one
            await pair.step()
            phones = [a_phone(pair, number) for number in range(2)]
            for phone in phones:
                await contributed(phone)
                assert any("relayed" in what for _, _, what in phone.seen.requests) is relayed
            await pair.finish()
            assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.PUBLISHED] * 2


async def test_a_ticket_a_round_and_a_session_of_one_task_mean_nothing_to_the_other() -> None:
    async with a_town(FIRST) as town:
        one, two = town.of(FIRST), await town.start(SECOND)
        await one.step()
        await two.step()
        ours, theirs = own(one, 0), own(two, 1)
        await ours.join()
        await theirs.join()
        right, ours.ticket = ours.ticket, theirs.ticket
        for role in (0, 1):
            answer = await ours.put(role, KEYS)
            assert answer is not None
            assert answer.json()["type"] == "urn:secemb:problem:ticket-refused"
        ours.ticket = right
        same = own(two, 2)
        same.name = ours.name
        taken = await same.join()
        assert taken is not None
        assert taken.status_code == 409  # a session id is used once, whichever the task
        for role in (0, 1):
            answer = await ours.put(role, KEYS)
            assert answer is not None
            assert answer.status_code == 200


async def test_a_task_that_cannot_go_on_does_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_town(FIRST) as town:
        one, two = town.of(FIRST), await town.start(SECOND)

        async def fail(*_: object) -> None:
            raise OSError("planted")

        monkeypatch.setattr(one.server0.leader, "_conduct", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="planted"):
                await one.step()
        devices = await fill(two)
        await two.finish()
        await assert_published(two, devices)
        checks = {check.check: check for check in await town.hosts[0].readiness()}
        assert all(check.ok for check in checks.values())


async def test_server_0_opens_no_round_of_a_task_that_server_1_does_not_run_and_says_so() -> None:
    async with a_town(FIRST) as town:
        two = await town.start(SECOND, 0)
        for _ in range(3):
            assert await two.step() == Paused()
        assert await town.hosts[0].ledger.last_round(SECOND.task_id) is None
        there = two.parties[0].control.there
        assert there is not None
        assert "server 1 does not run this task" in there.reason
        await town.hosts[1].add(SECOND.encode(), None, ORDER)
        two.meet()
        await two.server0.leader.exchange()
        devices = await fill(two)
        await two.finish()
        await assert_published(two, devices)


async def test_a_stopped_task_says_so_and_goes_on_with_its_round_after_its_start() -> None:
    async with a_town(FIRST) as town:
        one, two = town.of(FIRST), await town.start(SECOND)
        await one.step()
        devices = [own(one, number) for number in range(2)]
        await devices[0].take_part()
        await devices[1].join()
        for role in (0, 1):
            await town.hosts[role].stop(FIRST.task_id, ORDER)
        joined = await own(one, 3).join()
        sent = await devices[1].put(1, KEYS)
        for answer in (joined, sent):
            assert answer is not None
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "300")
            assert answer.json()["type"] == "urn:secemb:problem:task-stopped"
            assert "secemb task start" in answer.json()["detail"]
        one.line.broken.clear()  # a 503 is what a stopped task answers
        others = await fill(two)
        await two.finish()
        await assert_published(two, others)
        for role in (1, 0):
            await town.crash(role)
            assert FIRST.task_id not in town.hosts[role].running
            await town.hosts[role].start(FIRST.task_id, ORDER)
        one.meet()
        assert not isinstance(await one.step(), Open)
        for what in (KEYS, UPDATE):
            for role in (0, 1):
                await devices[1].put(role, what)
        await one.finish()
        await assert_published(one, devices)
        actions = await town.hosts[0].ledger.actions()
        assert [(one.what, one.task_id == FIRST.task_id, one.reason) for one in actions] == [
            ("task start", True, "a test"),
            ("task stop", True, "a test"),
            ("task start", False, "a test"),
        ]


async def test_a_task_that_server_1_has_stopped_takes_no_session_on_server_0() -> None:
    async with a_town(FIRST) as town:
        one = town.of(FIRST)
        await one.step()
        await own(one, 0).take_part()
        await town.hosts[1].stop(FIRST.task_id, ORDER)
        await one.server0.leader.exchange()
        turned_away = await own(one, 1).join()
        assert turned_away is not None
        assert (turned_away.status_code, turned_away.json()["paused"]) == (202, True)
        town.clock.now += 1000
        assert await one.step() in (Paused(), Idle())


async def test_only_a_stopped_task_without_an_unfinished_sum_is_archived_and_its_rows_stay() -> None:
    async with a_town(FIRST) as town:
        two = await town.start(SECOND)
        await fill(two)
        await two.finish()
        await two.step()
        assert (await last(two, 0)).state is RoundState.OPEN
        host = town.hosts[0]
        with pytest.raises(TaskControlError, match="stop it first"):
            await host.archive(SECOND.task_id, ORDER)
        await host.stop(SECOND.task_id, ORDER)
        await host.archive(SECOND.task_id, ORDER)
        assert (await last(two, 0)).state is RoundState.ABORTED
        assert not (town.folder / "server0" / "models" / SECOND.task_id.hex()).exists()
        assert not (town.folder / "server0" / "tasks" / SECOND.task_id.hex()).exists()
        assert await host.ledger.bodies.rounds() == []
        assert await host.ledger.shares_by_kind(SECOND.task_id) == {"train": 1}
        with pytest.raises(TaskControlError, match="archived"):
            await host.add(SECOND.encode(), None, ORDER)
        await town.crash(0)
        assert {one.name: one.state for one in await town.hosts[0].standings()} == {
            "first": "running",
            "second": TaskState.ARCHIVED,
        }


@pytest.mark.parametrize("what", ["start", "stop", "archive"])
async def test_a_crash_at_any_write_of_a_change_leaves_the_task_as_before_or_after(what: str) -> None:
    for after in (False, True):
        for writes in range(9):
            async with a_town(FIRST) as town:
                await prepare(town, what)
                town.fuses[0].light(writes, after=after)
                try:
                    await change(town, what)
                except CrashedError:
                    await town.crash(0)
                else:
                    town.fuses[0].writes = None
                    if not town.fuses[0].dead:
                        break  # there is no further write
                state = {one.name: one.state for one in await town.hosts[0].standings()}["second"]
                assert state in {"start": ("new", "earlier", "running"), "stop": ("running", "stopped")}.get(
                    what, ("stopped", "archived")
                )
                await change(town, what)
                assert {one.name: one.state for one in await town.hosts[0].standings()}["second"] == AFTER[what]
                one = town.of(FIRST)
                devices = await fill(one)
                await one.finish()
                await assert_published(one, devices)


async def prepare(town: Town, what: str) -> None:
    if what != "start":
        await town.start(SECOND)
    if what == "archive":
        await town.hosts[0].stop(SECOND.task_id, ORDER)


async def change(town: Town, what: str) -> None:
    host = town.hosts[0]
    if what == "start":
        await host.add(SECOND.encode(), None, ORDER)
    elif what == "stop":
        await host.stop(SECOND.task_id, ORDER)
    else:
        await host.archive(SECOND.task_id, ORDER)
