"""Sessions in the ledger: admission, uploads, resends, on SQLite and on PostgreSQL."""

import pytest
from tests.integration.databases import (
    NOW,
    TASK,
    WINDOW,
    complete_session,
    end_round,
    keys_body,
    name,
    new_round,
    open_round,
    upload,
)

from secemb_party.errors import LedgerFormatError, NotRecordedError
from secemb_party.ledger import Admission, Counts, Ledger, RoundState, Stored, Window

S, OTHER = name("session", 16), name("other session", 16)
DEVICE = name("device")

pytestmark = pytest.mark.asyncio


async def admit(ledger: Ledger, round_id: bytes, session_id: bytes = S, device: bytes = DEVICE) -> Admission:
    return await ledger.admit(round_id, session_id, device=device, limit=2, waiting=2, now=NOW, window=WINDOW)


async def put_keys(
    ledger: Ledger, round_id: bytes, body: bytes = b"keys", *, session_id: bytes = S, admission: bool = False
) -> Stored:
    keys = upload(round_id, session_id, body)
    return await ledger.put_keys(keys, NOW, require_admission=admission, limit=2)


async def put_update(ledger: Ledger, round_id: bytes, body: bytes = b"update", *, session_id: bytes = S) -> Stored:
    return await ledger.put_update(upload(round_id, session_id, body), NOW)


async def close_round(ledger: Ledger, round_id: bytes) -> None:
    await ledger.advance(round_id, RoundState.OPEN, RoundState.SEALING, NOW)


async def test_a_device_is_admitted_once_and_may_ask_again(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    assert await admit(ledger, round_id) is Admission.ADMITTED
    assert await admit(ledger, round_id) is Admission.ALREADY
    assert await ledger.counts(round_id) == Counts(admitted=1, keys=0, updates=0)


async def test_a_device_has_one_session_a_round(ledger: Ledger) -> None:
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    assert await admit(ledger, first) is Admission.ADMITTED
    assert await admit(ledger, first, OTHER) is Admission.DEVICE_TAKEN
    assert await admit(ledger, second, OTHER) is Admission.ADMITTED


async def test_a_session_belongs_to_one_device_and_one_round(ledger: Ledger) -> None:
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    assert await admit(ledger, first) is Admission.ADMITTED
    assert await admit(ledger, first, S, name("other device")) is Admission.SESSION_TAKEN
    assert await admit(ledger, second) is Admission.SESSION_TAKEN


async def test_a_full_round_admits_nobody_else(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    for text in ("one", "two"):
        assert await admit(ledger, round_id, name(text, 16), name(text)) is Admission.ADMITTED
    assert await admit(ledger, round_id, name("three", 16), name("three")) is Admission.FULL
    assert await admit(ledger, round_id, name("one", 16), name("one")) is Admission.ALREADY
    assert (await ledger.counts(round_id)).admitted == 2


async def test_a_session_begins_a_join_window_where_none_runs(ledger: Ledger) -> None:
    opened = new_round(opened_at=NOW, join_until=NOW, upload_until=NOW)
    await ledger.add_task(TASK, b"task", NOW)
    assert not (await ledger.create_round(opened)).started

    async def deadlines_after(text: str, now: float) -> tuple[float, float]:
        window = Window(now + 60, now + 600)
        found = await ledger.admit(
            opened.round_id, name(text, 16), device=name(text), limit=9, waiting=9, now=now, window=window
        )
        assert found is Admission.ADMITTED
        record = await ledger.round(opened.round_id)
        assert record is not None
        assert record.started
        return record.join_until - NOW, record.upload_until - NOW

    assert await deadlines_after("first", NOW + 7200) == (7260, 7800)
    assert await deadlines_after("in the window", NOW + 7259) == (7260, 7800)
    assert await deadlines_after("after the window", NOW + 7260) == (7320, 7860)
    # Deadlines only move on, and only while the round is open.
    await ledger.postpone(opened.round_id, Window(NOW + 1, NOW + 2))
    await close_round(ledger, opened.round_id)
    await ledger.postpone(opened.round_id, Window(NOW + 9000, NOW + 9001))
    record = await ledger.round(opened.round_id)
    assert record is not None
    assert record.upload_until == NOW + 7860


async def test_a_round_that_is_not_open_admits_nobody_new(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    await admit(ledger, round_id)
    await close_round(ledger, round_id)
    assert await admit(ledger, round_id, OTHER, name("other device")) is Admission.CLOSED
    assert await admit(ledger, round_id) is Admission.ALREADY


async def test_keys_and_update_are_stored_and_summarised(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    assert await admit(ledger, round_id) is Admission.ADMITTED
    assert await put_keys(ledger, round_id, admission=True) is Stored.STORED
    (summary,) = await ledger.session_summaries(round_id)
    assert not summary.complete
    assert await put_update(ledger, round_id) is Stored.STORED
    (summary,) = await ledger.session_summaries(round_id)
    assert summary.complete
    assert summary.session_id == S
    assert summary.keys_public_digest == upload(round_id, S, b"keys").public_digest
    assert summary.update_public_digest == upload(round_id, S, b"update").public_digest
    assert await ledger.counts(round_id) == Counts(admitted=1, keys=1, updates=1)
    assert await keys_body(ledger, round_id, S) == b"keys"


async def test_summaries_are_sorted_and_of_one_round(ledger: Ledger) -> None:
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    names = [name(str(number), 16) for number in range(20)]
    for session_id in names:
        await complete_session(ledger, first, session_id)
    await complete_session(ledger, second, name("elsewhere", 16))
    assert [summary.session_id for summary in await ledger.session_summaries(first)] == sorted(names)


async def test_the_same_bytes_again_are_the_same_and_others_are_different(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    for body, answer in ((b"keys", Stored.STORED), (b"keys", Stored.SAME), (b"other", Stored.DIFFERENT)):
        assert await put_keys(ledger, round_id, body) is answer
    for body, answer in ((b"update", Stored.STORED), (b"update", Stored.SAME), (b"other", Stored.DIFFERENT)):
        assert await put_update(ledger, round_id, body) is answer
    (bodies,) = [batch async for batch in ledger.read_bodies(round_id, [S], batch=32)]
    assert (bodies[0].keys, bodies[0].update) == (b"keys", b"update")


@pytest.mark.parametrize("state", [RoundState.SEALING, RoundState.ABORTED])
async def test_a_closed_round_answers_resends_but_takes_nothing_new(ledger: Ledger, state: RoundState) -> None:
    round_id = await open_round(ledger)
    await complete_session(ledger, round_id, S)
    assert await put_keys(ledger, round_id, session_id=OTHER) is Stored.STORED
    await ledger.advance(round_id, RoundState.OPEN, state, NOW, reason="a test")
    assert await put_keys(ledger, round_id, b"keys of " + S) is Stored.SAME
    assert await put_update(ledger, round_id, b"update of " + S) is Stored.SAME
    assert await put_keys(ledger, round_id, b"other") is Stored.DIFFERENT
    assert await put_update(ledger, round_id, b"other") is Stored.DIFFERENT
    assert await put_update(ledger, round_id, session_id=OTHER) is Stored.CLOSED
    assert await put_keys(ledger, round_id, session_id=name("new", 16)) is Stored.CLOSED
    assert await ledger.counts(round_id) == Counts(admitted=2, keys=2, updates=1)


async def test_where_admission_is_required_keys_need_it(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    assert await put_keys(ledger, round_id, admission=True) is Stored.UNKNOWN
    assert await ledger.counts(round_id) == Counts(admitted=0, keys=0, updates=0)


async def test_where_nobody_joins_keys_make_the_session_up_to_the_limit(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    for text in ("one", "two"):
        assert await put_keys(ledger, round_id, session_id=name(text, 16)) is Stored.STORED
    assert await put_keys(ledger, round_id, session_id=name("three", 16)) is Stored.FULL
    assert await put_keys(ledger, round_id, session_id=name("one", 16)) is Stored.SAME


async def test_an_update_needs_its_keys(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    assert await put_update(ledger, round_id) is Stored.NO_KEYS
    await admit(ledger, round_id)
    assert await put_update(ledger, round_id) is Stored.NO_KEYS
    assert await ledger.counts(round_id) == Counts(admitted=1, keys=0, updates=0)


async def test_a_session_is_never_accepted_in_two_rounds_even_when_its_bodies_are_gone(ledger: Ledger) -> None:
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    await complete_session(ledger, first, S)
    await end_round(ledger, first)
    for _ in range(2):
        assert await put_keys(ledger, second) is Stored.OTHER_ROUND
        assert await put_update(ledger, second) is Stored.OTHER_ROUND
        assert await admit(ledger, second) is Admission.SESSION_TAKEN
        await ledger.forget_bodies()
    assert await ledger.counts(second) == Counts(admitted=0, keys=0, updates=0)


async def test_nothing_is_taken_for_a_round_that_is_not_known(ledger: Ledger) -> None:
    with pytest.raises(NotRecordedError, match="round"):
        await put_keys(ledger, name("unknown"))
    with pytest.raises(NotRecordedError, match="round"):
        await put_update(ledger, name("unknown"))
    with pytest.raises(NotRecordedError, match="round"):
        await admit(ledger, name("unknown"))


async def test_ids_of_another_length_are_refused_and_nothing_is_stored(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    with pytest.raises(LedgerFormatError, match="expected 16 bytes, got 15"):
        await put_keys(ledger, round_id, session_id=S[:15])
    with pytest.raises(LedgerFormatError, match="32 bytes"):
        await admit(ledger, round_id, S, b"device")
    assert await ledger.counts(round_id) == Counts(admitted=0, keys=0, updates=0)


async def test_an_empty_body_is_a_body(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    assert await put_keys(ledger, round_id, b"") is Stored.STORED
    assert await keys_body(ledger, round_id, S) == b""
