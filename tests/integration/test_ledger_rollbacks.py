"""Rollbacks in the ledger: one wish at a time, each remembered, and fulfilled together with its version."""

import asyncio

import pytest
from tests.integration.databases import NOW, TASK, name

from secemb_party.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger import Ledger
from secemb_party.operators import Order

ORDER = Order("alice", "it got worse")

pytestmark = pytest.mark.asyncio


async def publish(ledger: Ledger, *versions: int) -> None:
    await ledger.add_task(TASK, b"specification", NOW)
    for version in versions:
        await ledger.record_version(TASK, version, name(f"model {version}"), NOW)
        await ledger.publish_version(TASK, version, NOW)


async def test_the_same_wish_is_one_wish(ledger: Ledger) -> None:
    await publish(ledger, 0, 1)
    first = await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW)
    assert await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW + 5) == first
    assert await ledger.open_rollback(TASK) == first
    assert await ledger.rollbacks(TASK) == [first]


async def test_who_wished_and_why_is_recorded_once_with_the_wish(ledger: Ledger) -> None:
    await publish(ledger, 0, 1)
    for _ in range(2):
        await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW)
    with pytest.raises(LedgerConflictError):
        await ledger.request_rollback(TASK, seen=0, source=0, order=ORDER, now=NOW)
    (done,) = await ledger.actions()
    assert (done.by, done.what, done.reason, done.at) == ("alice", "rollback", "it got worse", NOW)
    assert done.data == {"seen": 1, "source": 0}


async def test_a_second_wish_waits_for_the_end_of_the_first(ledger: Ledger) -> None:
    await publish(ledger, 0, 1, 2)
    first = await ledger.request_rollback(TASK, seen=2, source=0, order=ORDER, now=NOW)
    with pytest.raises(LedgerConflictError, match="another rollback is already pending"):
        await ledger.request_rollback(TASK, seen=2, source=1, order=ORDER, now=NOW)
    ended = await ledger.give_up_rollback(first, reason="no longer kept", now=NOW + 1)
    assert (ended.reason, ended.ended, ended.made) == ("no longer kept", True, None)
    assert await ledger.open_rollback(TASK) is None
    await ledger.request_rollback(TASK, seen=2, source=1, order=ORDER, now=NOW + 2)


async def test_a_wish_about_a_version_that_is_no_longer_published_is_refused(ledger: Ledger) -> None:
    await publish(ledger, 0, 1, 2)
    with pytest.raises(LedgerConflictError, match="published in the meantime"):
        await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW)
    assert await ledger.rollbacks(TASK) == []


async def test_a_wish_ends_with_the_version_that_fulfils_it(ledger: Ledger) -> None:
    await publish(ledger, 0, 1)
    wish = await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW)
    await ledger.record_version(TASK, 2, name("model 0 again"), NOW)
    done = await ledger.finish_rollback(wish, made=2, now=NOW + 1)
    assert (done.made, done.ended_at) == (2, NOW + 1)
    assert await ledger.finish_rollback(wish, made=2, now=NOW + 9) == done
    published = await ledger.published_version(TASK)
    assert published is not None
    assert published.version == 2
    assert await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW + 9) == done


async def test_a_wish_whose_version_cannot_be_published_stays_open(ledger: Ledger) -> None:
    await publish(ledger, 0, 1)
    wish = await ledger.request_rollback(TASK, seen=1, source=0, order=ORDER, now=NOW)
    with pytest.raises(NotRecordedError, match="version 2 of this task is not in the ledger"):
        await ledger.finish_rollback(wish, made=2, now=NOW)
    assert await ledger.open_rollback(TASK) == wish


async def test_of_two_who_wish_at_once_one_is_heard(ledger: Ledger, rival: Ledger) -> None:
    await publish(ledger, 0, 1, 2)
    wishes = [
        one.request_rollback(TASK, seen=2, source=source, order=ORDER, now=NOW)
        for one, source in ((ledger, 0), (rival, 1))
    ]
    outcomes = await asyncio.gather(*wishes, return_exceptions=True)
    assert sum(isinstance(one, LedgerConflictError) for one in outcomes) == 1
    assert len(await ledger.rollbacks(TASK)) == 1
