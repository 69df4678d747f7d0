"""A device follows its task to the successors, and never to anything that both servers have not signed."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.devices.phone import SERVERS, Marking, Phone
from tests.simulation.pair import IDENTITY, IDENTITY0
from tests.simulation.task_chain import TaskChain, a_chain

from secemb_sdk.context import Policy, Successor
from secemb_sdk.device import Device, Opening
from secemb_sdk.errors import GoneError, PinError, RatingError, SuccessorError
from secemb_sdk.home.records import Keyed
from secemb_sdk.home.switches import SwitchReceipt
from secemb_sdk.recommend import find_catalogue
from secemb_sdk.round.contribute import Contributed, Ended, Outcome
from secemb_sdk.steps import Answer, Request
from secemb_sdk.succession import following
from secemb_shared.catalogue import Catalogue
from secemb_shared.messages.succession import FRESH, Link

pytestmark = pytest.mark.asyncio
FILMS = Catalogue(ids=tuple(f"tt{row:02}" for row in range(24)))
# Two films are retired, the others move, and three are new.
LATER = Catalogue(ids=("new0", *FILMS.ids[12:], "new1", *FILMS.ids[2:12], "new2"))


def a_phone(chain: TaskChain, number: int = 0, **fields: Any) -> Phone:
    return Phone(chain, chain.folder / f"phone{number}", Marking(2**number), **fields)


async def take_part(chain: TaskChain, *phones: Phone) -> list[Outcome | None]:
    """Let devices finish a round."""
    outcomes: list[Outcome | None] = [None] * len(phones)
    for _ in range(8):
        for place, phone in enumerate(phones):
            if not isinstance(outcomes[place], Contributed):
                outcomes[place] = await phone.contribute()
        if all(isinstance(one, Contributed) for one in outcomes):
            break
        await chain.step()
    await chain.newest.finish()
    return outcomes


def switches(phone: Phone) -> list[SwitchReceipt]:
    context = phone.open()
    try:
        return context.vault.chain.receipts()
    finally:
        context.vault.close()


def facts(phone: Phone) -> dict[str, Any]:
    context = phone.open()
    try:
        private = context.vault.private()
        return {
            "ratings": context.vault.ratings(),
            "events": context.vault.events().items.tolist(),
            "steps": None if private is None else private.steps,
            "task": context.current_task,
            "detections": set(context.vault.detections()),
            "session": context.vault.session(),
        }
    finally:
        context.vault.close()


async def test_a_device_keeps_its_private_part_and_its_items_by_id() -> None:
    async with a_chain(catalogue=FILMS) as chain:
        phones = [a_phone(chain, number) for number in range(2)]
        for phone in phones:
            phone.log({0: 4.0, 5: 2.0, 20: 3.0})
            context = phone.open()
            context.vault.log_events([(1, 1.0), (23, 2.0)], now=9.0)
            context.vault.close()
        await take_part(chain, *phones)
        before = facts(phones[0])
        assert before["steps"] == 1
        link = await chain.switch(catalogue=LATER, capacity=5)
        assert all(isinstance(one, Contributed) for one in await take_part(chain, *phones))
        after = facts(phones[0])
        rows = {name: row for row, name in enumerate(LATER.ids)}
        assert after["ratings"] == {rows["tt05"]: 2.0, rows["tt20"]: 3.0}
        assert after["events"] == [rows["tt23"]]
        assert after["steps"] == 2
        assert after["task"].hex() == link.succession.successor
        (receipt,) = switches(phones[0])
        assert (receipt.kept, receipt.dropped, receipt.budget) == (3, 2, "continued")
        assert chain.newest.line.broken == []


async def test_a_device_that_was_away_for_ten_successors_catches_up() -> None:
    async with a_chain(catalogue=FILMS) as chain:
        phone = a_phone(chain)
        phone.log({3: 4.0, 7: 1.0})
        for number in range(10):
            more = (*FILMS.ids, *(f"n{one}" for one in range(number + 1)))
            turned = more[number:] + more[:number]
            await chain.switch(catalogue=Catalogue(ids=turned))
        await take_part(chain, phone, a_phone(chain, 1))
        found = facts(phone)
        assert {turned[item]: rating for item, rating in found["ratings"].items()} == {"tt03": 4.0, "tt07": 1.0}
        assert len(switches(phone)) == 10
        assert found["task"] == chain.newest.task.task_id


async def test_a_device_that_is_killed_at_any_point_follows_once() -> None:
    async with a_chain(catalogue=FILMS) as chain:
        for seed in range(40):
            Phone(chain, chain.folder / f"home{seed}", Marking(1)).log({0: 4.0, 5: 2.0, 20: 3.0})
        await chain.switch(catalogue=LATER)
        rows = {name: row for row, name in enumerate(LATER.ids)}
        for seed in range(40):
            phone = Phone(chain, chain.folder / f"home{seed}", Marking(1), seconds=5.0)
            ticks = count()
            phone.dies = lambda ticks=ticks, seed=seed: next(ticks) == seed  # type: ignore[misc]
            await phone.contribute()
            phone.dies = lambda: False
            await phone.contribute()
            assert facts(phone)["ratings"] == {rows["tt05"]: 2.0, rows["tt20"]: 3.0}
            assert len(switches(phone)) == 1


async def test_a_session_of_the_old_task_ends_with_a_receipt() -> None:
    async with a_chain() as chain:
        phone = a_phone(chain)
        phone.log({0: 4.0})
        await chain.step()
        for tick in range(30):
            ticks = count()
            phone.dies = lambda ticks=ticks, tick=tick: next(ticks) == tick  # type: ignore[misc]
            assert await phone.contribute() is None
            phone.dies = lambda: False
            if isinstance(facts(phone)["session"], Keyed):
                break
        assert isinstance(facts(phone)["session"], Keyed)
        chain.clock.now += 40
        await chain.newest.finish()
        await chain.switch(items=30)
        await take_part(chain, phone, a_phone(chain, 1))
        context = phone.open()
        first, last = context.vault.receipts()
        context.vault.close()
        assert (first.complete, last.complete) == (False, True)
        phone.seen.check()


async def test_an_app_can_stay_with_its_task() -> None:
    asked: list[Successor] = []

    def no(successor: Successor) -> bool:
        asked.append(successor)
        return False

    async with a_chain() as chain:
        phone = a_phone(chain, options={"policy": Policy(pace_seconds=0.0, seconds=20.0, follow=no)})
        phone.log({0: 4.0})
        await chain.switch(items=30, budget=FRESH)
        outcome = await phone.contribute()
        assert isinstance(outcome, Ended)
        assert "policy" in outcome.reason
        (found,) = asked
        assert (found.items, found.kept, found.budget) == (30, 24, FRESH)
        assert facts(phone)["task"] == chain.pairs[0].task.task_id
        phone.options = {}
        await take_part(chain, phone, a_phone(chain, 1))
        assert facts(phone)["task"] == chain.newest.task.task_id


def forge(change: Callable[[Link], Link], servers: tuple[int, ...] = (0, 1)) -> Callable[[Request, Answer], Answer]:
    """Return what servers do that present another link."""

    def alter(request: Request, answer: Answer) -> Answer:
        if not request.path.endswith("/successor") or request.server not in servers or answer.status != 200:
            return answer
        found = json.loads(answer.body)
        return replace(answer, body=json.dumps(found | change(Link.from_json(found)).as_json()).encode())

    return alter


def resigned(link: Link, *identities: Ed25519PrivateKey, **changes: Any) -> Link:
    task = replace(link.task, **changes)
    named = replace(link.succession, successor=task.task_id.hex())
    first, second = (one.sign(b"secemb/1 succession" + named.encode()) for one in identities)
    return Link(task=task, succession=named, signatures=(first, second))


def other_task(link: Link) -> Link:
    return replace(link, task=replace(link.task, seed=99))


def signed_by_server_0_alone(link: Link) -> Link:
    return resigned(link, IDENTITY0, IDENTITY0, seed=99)


def another_successor(link: Link) -> Link:
    """A fork: both servers have signed it too."""
    return resigned(link, IDENTITY0, IDENTITY, seed=99)


def other_rows(request: Request, answer: Answer) -> Answer:
    if request.path.endswith("/rows"):
        return replace(answer, body=answer.body[:-1] + bytes([answer.body[-1] ^ 1]))
    return answer


@pytest.mark.parametrize(
    ("alter", "detection", "fault"),
    [
        (forge(other_task), "successor", "not signed by both servers"),
        (forge(signed_by_server_0_alone), "successor", "not signed by both servers"),
        (forge(another_successor, (0,)), "fork", "different successors"),
        (forge(another_successor, (1,)), "fork", "different successors"),
        (lambda request, answer: replace(answer, body=b"{}") if "/successor" in request.path else answer,
            "successor", "not signed by both servers"),
        (other_rows, "successor", "other rows"),
    ],
)  # fmt: skip
async def test_nothing_changes_for_a_forged_successor(
    alter: Callable[[Request, Answer], Answer], detection: str, fault: str
) -> None:
    async with a_chain() as chain:
        phone = a_phone(chain)
        phone.log({0: 4.0})
        await chain.switch(items=30)
        phone.alter = alter
        with pytest.raises(SuccessorError, match=fault):
            await phone.contribute()
        found = facts(phone)
        assert found["detections"] == {detection}
        assert (found["task"], found["ratings"]) == (chain.pairs[0].task.task_id, {0: 4.0})
        phone.alter = lambda _request, answer: answer
        await take_part(chain, phone, a_phone(chain, 1))
        assert facts(phone)["task"] == chain.newest.task.task_id


async def test_a_switch_that_one_server_has_not_made_is_waited_for() -> None:
    async with a_chain() as chain:
        phone = a_phone(chain)
        phone.log({0: 4.0})
        await chain.switch(items=30)
        late = chain.pairs[0].parties[1].successions
        link, late.link = late.link, None
        outcome = await phone.contribute()
        assert not isinstance(outcome, Contributed | Ended | None)
        assert facts(phone)["detections"] == set()
        late.link = link
        await take_part(chain, phone, a_phone(chain, 1))
        assert len(switches(phone)) == 1


async def test_a_home_is_opened_with_any_task_of_its_chain_and_with_no_other() -> None:
    async with a_chain() as chain:
        phone = a_phone(chain)
        phone.log({0: 4.0})
        await chain.switch(items=30)
        newest = Opening(home=phone.folder, servers=SERVERS, task=chain.newest.task.task_id.hex())
        with pytest.raises(PinError, match="no such successor yet"):
            newest.open_home()
        await take_part(chain, phone, a_phone(chain, 1))
        newest.open_home().vault.close()


async def test_servers_that_went_back_to_the_old_task_are_named() -> None:
    async with a_chain() as chain:
        phone = a_phone(chain)
        phone.log({0: 4.0})
        await chain.switch(items=30)
        await take_part(chain, phone, a_phone(chain, 1))
        chain.pairs[0].parties[0].successions.link = chain.pairs[0].parties[1].successions.link = None
        newest, chain.pairs = chain.pairs[-1], chain.pairs[:1]  # restored from a backup
        with pytest.raises(PinError, match="older than the task"):
            await phone.contribute()
        chain.pairs.append(newest)


async def test_the_hold_out_stays_the_same_people_s_ratings() -> None:
    async with a_chain(catalogue=FILMS) as chain:
        phone = a_phone(chain, options={"hold_out": 0.5})
        phone.log(dict.fromkeys(range(24), 3.0))
        held = held_out(phone, FILMS)
        await chain.switch(catalogue=LATER)
        await take_part(chain, phone, a_phone(chain, 1))
        assert held_out(phone, LATER) == held - {"tt00", "tt01"}
        await chain.switch(catalogue=FILMS)
        await take_part(chain, phone, a_phone(chain, 1))
        assert held_out(phone, FILMS) == held - {"tt00", "tt01"}


def held_out(phone: Phone, catalogue: Catalogue) -> set[str]:
    context = phone.open()
    try:
        kept = context.held_out()
        return {catalogue.ids[item] for item in context.vault.ratings() if item in kept}
    finally:
        context.vault.close()


async def test_items_are_logged_by_external_id_and_looked_up_on_the_device() -> None:
    async with a_chain(catalogue=FILMS) as chain:
        phone = a_phone(chain)
        context = phone.open()
        device = Device(context, None)  # type: ignore[arg-type]
        with pytest.raises(RatingError, match="no catalogue of external ids that this device knows of"):
            device.log(item="tt05", rating=4.0)
        await phone.drive(following(context, lambda: find_catalogue(context)))
        asked = len(phone.seen.requests)
        device.log(item="tt05", rating=4.0)
        device.log(item="tt06")
        device.log_many({"tt07": 1.0})
        assert device.ratings() == {5: 4.0, 7: 1.0}
        assert device.remove(item="tt07")
        with pytest.raises(RatingError, match="no item has the id 'tt99'"):
            device.log(item="tt99", rating=1.0)
        assert len(phone.seen.requests) == asked
        await chain.switch(catalogue=LATER)
        ranked = device._rank([5], include_rated=True, titles=False)
        with pytest.raises(GoneError, match="rows have other numbers"):
            await phone.drive(ranked)
        await phone.drive(following(context, lambda: find_catalogue(context)))
        device.log(item="new1", rating=2.0)
        assert device.ratings() == {LATER.row_of("tt05"): 4.0, LATER.row_of("new1"): 2.0}
        context.vault.close()


async def test_the_servers_model_goes_on_for_devices(tmp_path: Path) -> None:
    async with a_chain(optimiser="sgd") as chain:
        phones = [a_phone(chain, number) for number in range(2)]
        for phone in phones:
            phone.log({0: 4.0})
        await take_part(chain, *phones)
        await chain.switch(items=30)
        await take_part(chain, *phones)
        before = chain.pairs[0].parties[0].models.load(1).rows[:24]
        after = chain.newest.parties[0].models.load(1).rows[:24]
        assert before[0].any()
        assert np.array_equal(after[1:], before[1:])
        assert not np.array_equal(after[0], before[0])
