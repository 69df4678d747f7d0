"""The switch to a successor: on both servers or on neither, whoever dies and whatever gets lost."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import SUCCEEDED, Pair, a_pair
from tests.simulation.test_rollback import published

from secemb_party.ledger import What
from secemb_party.operators import Order
from secemb_party.succession.errors import SuccessionRefusedError
from secemb_server0.conductor import Abort, Finished, Idle, Open, Paused, Succeed, Succeeded
from secemb_shared.catalogue import Catalogue, digest_of
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.succession import FRESH, Link
from secemb_shared.row_map import MEAN, ZERO

pytestmark = pytest.mark.asyncio
ADAM: dict[str, Any] = {"optimiser": "adam", "row_rate": "0.5", "guard": "8", "initial_scale": "0.5"}


def successor_of(task: TaskSpec, **changes: object) -> TaskSpec:
    return replace(task, **({"items": 30, "predecessor": task.task_id.hex()} | changes))  # type: ignore[arg-type]


async def agree(pair: Pair, task: TaskSpec, *, roles: tuple[int, ...] = (0, 1), **terms: str) -> None:
    for role in roles:
        await pair.parties[role].successions.agree(task.encode(), None, **terms)


async def switch(pair: Pair) -> None:
    """Let the servers tell each other what was agreed, and go on until they have switched."""
    for _ in range(60):
        await pair.exchange()
        if isinstance(await pair.step(), Succeeded):
            return
    raise AssertionError("the servers do not switch")


async def run_rounds(pair: Pair, count: int) -> None:
    """Let two devices move the model in each of so many rounds."""
    for _ in range(count):
        while not isinstance(await pair.step(), Open | Idle):
            pass
        await take_part(pair)
        await pair.finish()


async def take_part(pair: Pair) -> None:
    record = await pair.parties[0].ledger.last_round(pair.task.task_id)
    assert record is not None
    for power in range(2):
        name = hashlib.sha256(record.round_id + bytes([power])).digest()[:16]
        await a_device(pair, power, name=name).take_part()


def links(pair: Pair) -> list[Link | None]:
    return [pair.parties[role].successions.link for role in (0, 1)]


@asynccontextmanager
async def going_on(pair: Pair) -> AsyncIterator[Pair]:
    """Run the servers of the successor, in the same folders and with the same ledgers."""
    (link, other) = links(pair)
    assert link is not None
    assert link == other
    await pair.stop()
    after = Pair(pair.folder, link.task, clock=pair.clock)
    try:
        yield await after.start()
    finally:
        await after.stop()
        await pair.start()


async def test_the_successor_begins_where_the_task_ended() -> None:
    async with a_pair(**SUCCEEDED, **ADAM) as pair:
        await run_rounds(pair, 3)
        last, state = await published(pair, 0), pair.parties[0].models.load_state()
        assert state is not None
        await agree(pair, successor_of(pair.task), start=ZERO)
        assert isinstance(await pair.step(), Open)  # server 0 does not know yet that server 1 agrees
        await pair.exchange()
        assert isinstance(await pair.step(), Abort)  # no device takes part in the round
        assert isinstance(await pair.step(), Succeed)
        assert isinstance(await pair.step(), Succeeded)
        link = links(pair)[0]
        assert link is not None
        link.check(pair.task)
        named = link.succession
        assert (named.last_version, named.last_digest) == (3, last.digest.hex())
        async with going_on(pair) as after:
            first = [await published(after, role) for role in (0, 1)]
            assert {one.digest.hex() for one in first} == {named.first_digest}
            assert np.array_equal(first[0].rows[:24], last.rows)
            assert not first[0].rows[24:].any()
            began = after.parties[0].models.load_state()
            assert began is not None
            assert np.array_equal(began.tensors["rows_first"][:24], state.tensors["rows_first"])
            await run_rounds(after, 2)
            assert (await published(after, 1)).version == 2
            assert after.line.broken == []


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("writes", range(4))
async def test_a_crash_at_any_write_leaves_both_or_neither(role: int, after: bool, writes: int) -> None:
    async with a_pair(**SUCCEEDED, **ADAM) as pair:
        await run_rounds(pair, 1)
        await agree(pair, successor_of(pair.task))
        pair.fuses[role].light(writes, after=after)
        await switch(pair)
        first, second = links(pair)
        assert first == second != None  # noqa: E711
        async with going_on(pair) as on:
            await run_rounds(on, 1)
            assert on.line.broken == []


@pytest.mark.parametrize(("lost", "count"), [("lose_requests", 1), ("lose_responses", 1), ("lose_responses", 3)])
async def test_lost_calls_are_repeated(lost: str, count: int) -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        setattr(pair.line, lost, count)
        await switch(pair)
        assert links(pair)[0] == links(pair)[1]
        assert pair.line.broken == []


async def test_server_0_follows_a_switch_that_it_has_missed_even_if_its_operator_changed_their_mind() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        pair.line.lose_responses = 1
        assert await pair.step() is None
        assert links(pair)[0] is None
        assert links(pair)[1] is not None
        await pair.parties[0].successions.withdraw()
        for _ in range(3):
            await pair.step()  # a round opens here, and server 1 refuses it
        assert links(pair)[0] == links(pair)[1]


async def test_a_late_call_does_not_end_a_task_that_went_on() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await run_rounds(pair, 1)
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        pair.line.hold_requests = 1
        assert await pair.step() is None  # the offer is on the way
        for role in (0, 1):
            await pair.parties[role].successions.withdraw()
        await run_rounds(pair, 1)
        await agree(pair, successor_of(pair.task), roles=(1,))
        await pair.deliver_held()
        assert links(pair) == [None, None]
        await run_rounds(pair, 1)


async def test_nothing_happens_while_the_operators_do_not_agree() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        one, other = successor_of(pair.task), successor_of(pair.task, capacity=5)
        await agree(pair, one, roles=(0,))
        await pair.exchange()
        await run_rounds(pair, 1)
        await agree(pair, other, roles=(1,))
        await pair.exchange()
        await run_rounds(pair, 1)
        for terms in ({"budget": FRESH}, {"start": MEAN}):
            await agree(pair, one, roles=(1,), **terms)
            await pair.exchange()
            await run_rounds(pair, 1)
        assert links(pair) == [None, None]
        await agree(pair, one, roles=(1,))
        await switch(pair)


async def test_a_server_1_that_was_told_otherwise_refuses_and_rounds_go_on() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        await pair.parties[1].successions.withdraw()  # server 0 does not know yet
        assert isinstance(await pair.step(), Succeed)
        await run_rounds(pair, 2)
        assert links(pair) == [None, None]


async def test_a_paused_task_does_not_switch() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        assert await pair.steer(0, lambda control: control.tell(What.PAUSE, Order("tests", "new disks")))
        assert isinstance(await pair.step(), Paused)
        assert await pair.steer(0, lambda control: control.lift(What.PAUSE, Order("tests")))
        await switch(pair)


async def test_a_task_that_has_finished_can_go_on() -> None:
    async with a_pair(**SUCCEEDED, rounds=1) as pair:
        await run_rounds(pair, 1)
        assert isinstance(await pair.step(), Finished)
        await agree(pair, successor_of(pair.task))
        await switch(pair)
        async with going_on(pair) as after:
            await run_rounds(after, 1)


async def test_a_round_with_devices_ends_before_the_switch() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        while not isinstance(await pair.step(), Open | Idle):
            pass
        await take_part(pair)
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        await pair.finish()
        assert (await published(pair, 0)).version == 1
        await switch(pair)
        link = links(pair)[0]
        assert link is not None
        assert link.succession.last_version == 1


async def test_two_switches_in_a_row_and_back_to_earlier_settings() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        await run_rounds(pair, 1)
        await agree(pair, successor_of(pair.task))
        await switch(pair)
        async with going_on(pair) as second:
            back = successor_of(second.task, items=24)
            assert replace(back, predecessor="") == pair.task
            assert back.task_id != pair.task.task_id
            await agree(second, back)
            await switch(second)
            async with going_on(second) as third:
                await run_rounds(third, 1)
                assert (await published(third, 0)).rows.shape[0] == 24


async def ask(pair: Pair, role: int, path: str, task: TaskSpec | None = None) -> httpx.Response:
    url = f"https://server{role}/v1/tasks/{(task or pair.task).task_id.hex()}{path}"
    answer = await pair.send(role, httpx.Request("GET", url))
    assert answer is not None
    return answer


async def test_devices_get_the_same_link_from_both_servers_and_nothing_else_of_the_old_task() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        assert (await ask(pair, 0, "/successor")).json()["type"] == "urn:secemb:problem:successor-unknown"
        await agree(pair, successor_of(pair.task))
        await switch(pair)
        answers = [await ask(pair, role, "/successor") for role in (0, 1)]
        assert answers[0].content == answers[1].content
        found = json.loads(answers[0].content)
        assert TaskSpec.decode(found["predecessor"].encode()) == pair.task
        Link.from_json(found).check(pair.task)
        maps = [(await ask(pair, role, "/successor/rows")).content for role in (0, 1)]
        agreed = pair.parties[0].successions.agreed
        assert agreed is not None
        assert maps == [agreed.rows.encode()] * 2
        for role in (0, 1):
            for path in ("", "/table/0?format=float32", "/dense/0"):
                refused = await ask(pair, role, path)
                assert (refused.status_code, refused.json()["type"]) == (410, "urn:secemb:problem:task-succeeded")


async def test_an_operator_agrees_only_to_what_can_continue_the_task() -> None:
    films = Catalogue(ids=tuple(f"tt{row}" for row in range(24)))
    async with a_pair(**SUCCEEDED, catalogue=films.encode()) as pair:
        party = pair.parties[1]
        more = Catalogue(ids=(*films.ids[:20], "new")).encode()
        fits = successor_of(pair.task, items=21, catalogue=digest_of(more))
        twice = b"row,id,title\n" + b"".join(b"%d,a,\n" % row for row in range(21))
        wrong: list[tuple[TaskSpec, bytes | None, dict[str, str], str]] = [
            (replace(fits, predecessor=""), more, {}, "does not name this one"),
            (replace(fits, row_width=3), more, {}, "the same row_width"),
            (replace(fits, items=20), more, {}, "of all their items"),
            (fits, None, {}, "not the one that the successor names"),
            (fits, films.encode(), {}, "not the one that the successor names"),
            (replace(fits, catalogue=""), None, {}, "or neither"),
            (replace(fits, catalogue=digest_of(twice)), twice, {}, "'a' is listed twice"),
            (fits, more, {"start": "random"}, "must start as one of"),
            (fits, more, {"budget": "free"}, "continued or fresh"),
        ]
        for task, catalogue, terms, fault in wrong:
            with pytest.raises(SuccessionRefusedError, match=fault):
                await party.successions.agree(task.encode(), catalogue, **terms)
            assert party.successions.agreed is None
        with pytest.raises(SuccessionRefusedError):
            await party.successions.agree(b"{}", None)
        await party.successions.agree(fits.encode(), more)
        agreed = party.successions.agreed
        assert agreed is not None
        assert (agreed.rows.retired, agreed.rows.kept.size) == (4, 20)
        await pair.crash(1)
        again = pair.parties[1].successions.agreed
        assert again is not None
        assert again.digest == agreed.digest


async def test_a_million_new_items_at_once_are_a_map_of_two_runs() -> None:
    async with a_pair(**SUCCEEDED) as pair:
        task = successor_of(pair.task, items=1_000_024, bins=250_000)
        await agree(pair, task)
        agreed = pair.parties[0].successions.agreed
        assert agreed is not None
        assert len(agreed.rows.encode()) == 26
        await switch(pair)
        async with going_on(pair) as after:
            assert (await published(after, 1)).rows.shape == (1_000_024, 2)


async def test_a_server_without_the_named_identity_agrees_to_nothing() -> None:
    async with a_pair(**SUCCEEDED | {"identity0": "ab" * 32}) as pair:
        with pytest.raises(SuccessionRefusedError, match="not one of those that the task names"):
            await agree(pair, successor_of(pair.task), roles=(0,))
    async with a_pair() as pair:
        with pytest.raises(SuccessionRefusedError, match="does not name the identities"):
            await agree(pair, successor_of(pair.task))


async def test_server_1_signs_nothing_that_server_0_has_not_signed() -> None:
    """A forged offer, and a second successor after the first: there is never a fork."""
    async with a_pair(**SUCCEEDED) as pair:
        await agree(pair, successor_of(pair.task))
        await pair.exchange()
        successions = pair.parties[0].successions
        original = successions.sign
        successions.sign = lambda succession: bytes(64)  # type: ignore[method-assign]
        assert isinstance(await pair.step(), Succeed)
        assert links(pair) == [None, None]
        successions.sign = original  # type: ignore[method-assign]
        await switch(pair)
        with pytest.raises(SuccessionRefusedError, match="already has a successor"):
            await agree(pair, successor_of(pair.task, capacity=5))
