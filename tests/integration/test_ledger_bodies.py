"""Bodies of sessions: read in batches and in order, forgotten without their digests."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Connection
from tests.integration.databases import NOW, TASK, complete_session, end_round, keys_body, name, open_round, upload

from secemb_party.errors import LedgerFormatError, NotRecordedError
from secemb_party.evaluation import SessionBodies
from secemb_party.ledger import Ledger, Stored
from secemb_party.storage.interfaces import BodyNames, Step

NAMES = [name(f"session {number}", 16) for number in range(10)]

pytestmark = pytest.mark.asyncio


async def ended_rounds(ledger: Ledger, count: int, task_id: bytes = TASK) -> list[bytes]:
    """Make so many rounds of two sessions each; the one of number n ended at NOW + n."""
    rounds = [await open_round(ledger, number, task_id=task_id) for number in range(1, count + 1)]
    for at, round_id in enumerate(rounds, start=1):
        for text in "ab":
            await complete_session(ledger, round_id, name(f"{task_id.hex()} {at} {text}", 16))
        await end_round(ledger, round_id, NOW + at)
    return rounds


async def held(ledger: Ledger, round_id: bytes) -> int:
    """Return how many sessions of a round still have their keys."""
    names = [summary.session_id for summary in await ledger.session_summaries(round_id)]
    return sum([await keys_body(ledger, round_id, session_id) is not None for session_id in names])


@pytest.mark.parametrize("batch", [1, 3, 10, 32])
async def test_bodies_come_in_the_order_asked_for_and_in_batches(ledger: Ledger, batch: int) -> None:
    round_id = await open_round(ledger)
    for session_id in NAMES:
        await complete_session(ledger, round_id, session_id)
    wanted = random.Random(batch).sample(NAMES, 8)
    batches = [found async for found in ledger.read_bodies(round_id, wanted, batch=batch)]
    assert all(len(found) == batch for found in batches[:-1])
    found = [session for some in batches for session in some]
    assert found == [
        SessionBodies(session_id, b"keys of " + session_id, b"update of " + session_id) for session_id in wanted
    ]


async def test_bodies_of_a_session_that_is_not_complete_or_of_another_round_are_not_given(ledger: Ledger) -> None:
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    await ledger.put_keys(upload(first, NAMES[0]), NOW, require_admission=False, limit=9)
    await complete_session(ledger, second, NAMES[1])
    for session_id in NAMES[:3]:
        with pytest.raises(NotRecordedError, match="not complete here"):
            await anext(ledger.read_bodies(first, [session_id], batch=32))
    assert await keys_body(ledger, first, NAMES[1]) is None


async def test_large_bodies_come_back_whole(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    body = random.Random(1).randbytes(3_000_000)
    await ledger.put_keys(upload(round_id, NAMES[0], body), NOW, require_admission=False, limit=9)
    assert await keys_body(ledger, round_id, NAMES[0]) == body


async def test_forgetting_removes_bodies_and_keeps_digests(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    await complete_session(ledger, round_id, NAMES[0])
    await end_round(ledger, round_id)
    before = await ledger.session_summaries(round_id), await ledger.counts(round_id)
    assert await ledger.forget_bodies() == 2
    assert await keys_body(ledger, round_id, NAMES[0]) is None
    with pytest.raises(NotRecordedError, match="deleted"):
        await anext(ledger.read_bodies(round_id, NAMES[:1], batch=32))
    assert (await ledger.session_summaries(round_id), await ledger.counts(round_id)) == before
    for body, answer in ((b"keys of " + NAMES[0], Stored.SAME), (b"other", Stored.DIFFERENT)):
        assert await ledger.put_keys(upload(round_id, NAMES[0], body), NOW, require_admission=False, limit=9) is answer
    for body, answer in ((b"update of " + NAMES[0], Stored.SAME), (b"other", Stored.DIFFERENT)):
        assert await ledger.put_update(upload(round_id, NAMES[0], body), NOW) is answer
    assert await ledger.forget_bodies() == 0


async def test_a_round_that_has_not_ended_is_never_forgotten(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    await complete_session(ledger, round_id, NAMES[0])
    assert await ledger.forget_bodies() == await ledger.forget_bodies(ended_before=NOW + 1e6) == 0
    assert await held(ledger, round_id) == 1


async def test_only_rounds_that_ended_before_a_time_are_forgotten(ledger: Ledger) -> None:
    rounds = await ended_rounds(ledger, 4)
    assert await ledger.forget_bodies(ended_before=NOW + 3) == 2 * 2 * 2
    assert [await held(ledger, round_id) for round_id in rounds] == [0, 0, 2, 2]


async def test_the_last_rounds_of_each_task_are_kept(ledger: Ledger) -> None:
    rounds = await ended_rounds(ledger, 4)
    others = await ended_rounds(ledger, 2, name("other task"))
    assert await ledger.forget_bodies(keep_last_rounds=1) == (3 + 1) * 2 * 2
    assert [await held(ledger, round_id) for round_id in rounds] == [0, 0, 0, 2]
    assert [await held(ledger, round_id) for round_id in others] == [0, 2]


async def test_both_conditions_must_hold(ledger: Ledger) -> None:
    rounds = await ended_rounds(ledger, 4)
    await ledger.forget_bodies(ended_before=NOW + 4, keep_last_rounds=2)
    assert [await held(ledger, round_id) for round_id in rounds] == [0, 0, 2, 2]
    with pytest.raises(LedgerFormatError):
        await ledger.forget_bodies(keep_last_rounds=-1)


async def test_more_than_one_batch_is_forgotten(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    names = [name(f"many {number}", 16) for number in range(70)]
    for session_id in names:
        await ledger.put_keys(upload(round_id, session_id), NOW, require_admission=False, limit=1000)
    await end_round(ledger, round_id)
    assert await ledger.forget_bodies() == 70
    assert await held(ledger, round_id) == 0


class Shelf:
    """A store of bodies outside the database, as an object store would be."""

    def __init__(self) -> None:
        self.held: dict[tuple[bytes, bytes, str, bytes], bytes] = {}

    async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
        self.held[round_id, session_id, part, digest] = body
        return lambda tx: None

    async def read(self, round_id: bytes, names: Sequence[BodyNames]) -> list[SessionBodies]:
        return [
            SessionBodies(
                one.session_id,
                self.held[round_id, one.session_id, "keys", one.keys],
                self.held[round_id, one.session_id, "update", one.update],
            )
            for one in names
        ]

    async def rounds(self) -> list[bytes]:
        return sorted({key[0] for key in self.held})

    async def drop(self, round_id: bytes) -> int:
        gone = [key for key in self.held if key[0] == round_id]
        return len([self.held.pop(key) for key in gone])


async def test_bodies_can_be_kept_outside_the_database(ledger: Ledger) -> None:
    elsewhere = Ledger(ledger._database, Shelf())
    first, second = [await open_round(elsewhere, number) for number in (1, 2)]
    for round_id in (first, second):
        await complete_session(elsewhere, round_id, name(f"{round_id.hex()}", 16))
    wanted = [name(first.hex(), 16)]
    assert await keys_body(elsewhere, first, wanted[0]) is None
    assert [found async for found in elsewhere.read_bodies(first, wanted, batch=1)] == [
        [SessionBodies(wanted[0], b"keys of " + wanted[0], b"update of " + wanted[0])]
    ]
    await end_round(elsewhere, first)
    assert await elsewhere.forget_bodies() == 2
    assert await elsewhere.bodies.rounds() == [second]


async def test_a_store_elsewhere_gives_the_body_that_was_recorded_and_not_one_that_was_refused(ledger: Ledger) -> None:
    shelf, (session_id, *_) = Shelf(), NAMES
    elsewhere, round_id = Ledger(ledger._database, shelf), await open_round(ledger)
    for part in ("keys", "update"):  # staged, and then the ledger never heard of it
        await shelf.stage(round_id, session_id, part, name("other digest"), b"of an upload that was cut short")
    await complete_session(elsewhere, round_id, session_id)
    for body in (b"another", b"one more"):
        late = replace(upload(round_id, session_id), body=body, body_digest=hashlib.sha256(body).digest())
        stored = await elsewhere.put_keys(late, NOW, require_admission=False, limit=9)
        assert stored is Stored.DIFFERENT
    assert [found async for found in elsewhere.read_bodies(round_id, [session_id], batch=1)] == [
        [SessionBodies(session_id, b"keys of " + session_id, b"update of " + session_id)]
    ]


async def test_a_body_that_cannot_be_stored_is_not_recorded(ledger: Ledger) -> None:
    class Full(Shelf):
        async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
            def fail(tx: Connection) -> None:
                raise LedgerFormatError("planted")

            return fail

    round_id = await open_round(ledger)
    with pytest.raises(LedgerFormatError, match="planted"):
        await Ledger(ledger._database, Full()).put_keys(
            upload(round_id, NAMES[0]), NOW, require_admission=False, limit=9
        )
    assert await ledger.session_summaries(round_id) == []
