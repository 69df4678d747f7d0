"""After a switch, both servers run the successor by themselves, and serve the link of the task that has ended."""

import asyncio
from dataclasses import replace

import pytest
from tests.devices.phone import Marking, Phone
from tests.simulation.pair import SUCCEEDED, a_task
from tests.simulation.round_states import last
from tests.simulation.town import ORDER, Town, TownTask, a_town

from secemb_party.ledger import RoundState
from secemb_party.tenancy.errors import TaskControlError
from secemb_party.tenancy.host import Host
from secemb_sdk.round.contribute import Contributed
from secemb_server0.conductor import Succeeded
from secemb_shared.catalogue import FILE, Catalogue, digest_of
from secemb_shared.messages import TaskSpec

pytestmark = pytest.mark.asyncio
FILMS = Catalogue(ids=tuple(f"tt{row:02}" for row in range(24)))
LATER = Catalogue(ids=("new0", *FILMS.ids[12:], "new1", *FILMS.ids[2:12], "new2"))
FIRST = a_task(catalogue=digest_of(FILMS.encode()), items=24, **SUCCEEDED)
SECOND = replace(
    FIRST, predecessor=FIRST.task_id.hex(), name="second", items=len(LATER), catalogue=digest_of(LATER.encode())
)


async def switch(town: Town, before: TaskSpec, after: TaskSpec, catalogue: bytes | None) -> None:
    """Let both operators agree, and step until the task has ended on both servers."""
    pair = town.of(before)
    for role in (0, 1):
        await pair.parties[role].successions.agree(after.encode(), catalogue)
    for _ in range(60):
        await pair.exchange()
        if isinstance(await pair.step(), Succeeded):
            return
    raise AssertionError("the servers do not switch")


async def take_part(pair: TownTask, phones: list[Phone]) -> None:
    """Let devices, which know the first task only, finish a round of this one."""
    waiting = phones
    for _ in range(8):
        waiting = [phone for phone in waiting if not isinstance(await phone.contribute(), Contributed)]
        if not waiting:
            break
        await pair.step()
    assert not waiting
    await pair.finish()
    assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.PUBLISHED] * 2


async def runs(host: Host, task: TaskSpec) -> None:
    while task.task_id not in host.running:  # noqa: ASYNC110  (the host has no event to wait for)
        await asyncio.sleep(0.01)


def phones_of(pair: TownTask) -> list[Phone]:
    return [Phone(pair, pair.folder / f"phone{number}", Marking(2**number)) for number in range(2)]


def states(town: Town, *tasks: TaskSpec) -> list[list[bool]]:
    return [[task.task_id in host.running for task in tasks] for host in town.hosts]


async def test_the_successor_runs_by_itself_and_devices_follow_also_after_a_restart() -> None:
    async with a_town(FIRST, catalogue=FILMS.encode()) as town:
        one = town.of(FIRST)
        phones = phones_of(one)
        await take_part(one, phones)
        await switch(town, FIRST, SECOND, LATER.encode())
        for host in town.hosts:
            await host.check()
        assert states(town, FIRST, SECOND) == [[True, True]] * 2
        await take_part(town.of(SECOND), phones)
        for role in (0, 1):
            await town.crash(role)
        assert states(town, FIRST, SECOND) == [[True, True]] * 2
        # A device that was away still follows the link, which only the ended task has.
        await take_part(town.of(SECOND), [*phones, Phone(one, one.folder / "late", Marking(4))])
        for host in town.hosts:
            assert {one.state for one in await host.standings()} == {"succeeded", "running"}
            assert host.choose(None).party.task == SECOND
            assert (host.files.all()[SECOND.task_id].file.with_name(FILE)).read_bytes() == LATER.encode()


@pytest.mark.parametrize("role", [0, 1])
async def test_a_crash_between_the_switch_and_the_start_of_the_successor_loses_nothing(role: int) -> None:
    async with a_town(FIRST, catalogue=FILMS.encode()) as town:
        await switch(town, FIRST, SECOND, LATER.encode())
        third = replace(SECOND, predecessor=SECOND.task_id.hex(), name="third", cohort=FIRST.cohort + 1)
        await town.crash(role)  # nobody has started the successor
        assert SECOND.task_id in town.hosts[role].running
        await town.hosts[1 - role].check()
        await switch(town, SECOND, third, None)  # the catalogue is as before
        await town.crash(role)
        await town.hosts[1 - role].check()
        assert states(town, FIRST, SECOND, third) == [[True] * 3] * 2
        await take_part(town.of(third), phones_of(town.of(FIRST)))


async def test_a_task_with_a_living_successor_is_not_archived_and_a_stopped_successor_stays_stopped() -> None:
    async with a_town(FIRST, catalogue=FILMS.encode()) as town:
        await switch(town, FIRST, SECOND, LATER.encode())
        host = town.hosts[0]
        await host.check()
        await host.stop(FIRST.task_id, ORDER)
        with pytest.raises(TaskControlError, match="archive its successor first"):
            await host.archive(FIRST.task_id, ORDER)
        await host.start(FIRST.task_id, ORDER)
        await host.stop(SECOND.task_id, ORDER)
        await host.check()
        assert SECOND.task_id not in host.running
        await host.archive(SECOND.task_id, ORDER)
        await host.stop(FIRST.task_id, ORDER)
        assert (await host.archive(FIRST.task_id, ORDER)).state == "archived"


async def test_a_server_wakes_up_for_a_successor_and_then_ends_the_loops_of_the_old_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secemb_party.tenancy.host._RETRY_SECONDS", 3600.0)
    living = {"rounds": False, "upkeep": False}

    async def loop(name: str) -> None:
        living[name] = True
        try:
            await asyncio.Event().wait()
        finally:
            living[name] = False

    async with a_town(FIRST, catalogue=FILMS.encode()) as town:
        host = town.hosts[1]
        host.running[FIRST.task_id] = replace(
            host.running[FIRST.task_id], work=[lambda: loop("rounds")], upkeep=[lambda: loop("upkeep")]
        )
        serving = asyncio.ensure_future(host.run())
        await switch(town, FIRST, SECOND, LATER.encode())
        await runs(host, SECOND)
        assert living == {"rounds": True, "upkeep": True}
        await host.check()
        await asyncio.sleep(0)
        assert living == {"rounds": False, "upkeep": True}
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not any(living.values())
