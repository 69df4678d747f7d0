"""Rounds in the ledger and the one way they move, on SQLite and on PostgreSQL."""

from itertools import pairwise
from typing import Any

import pytest
from tests.integration.databases import NOW, TASK, complete_session, end_round, name, new_round, open_round

from secemb_party.errors import LedgerConflictError, LedgerFormatError, NotRecordedError, StateConflictError
from secemb_party.ledger import Ledger, RoundState, allowed

OPEN, SEALING, SEALED, SHARED = RoundState.OPEN, RoundState.SEALING, RoundState.SEALED, RoundState.SHARED
RECONSTRUCTED, PUBLISHED, ABORTED = RoundState.RECONSTRUCTED, RoundState.PUBLISHED, RoundState.ABORTED
DISCARDED = RoundState.DISCARDED
WAY = [OPEN, SEALING, SEALED, SHARED, RECONSTRUCTED, PUBLISHED]
SESSIONS = [name(text, 16) for text in ("a", "b", "c")]
FACTS: dict[RoundState, dict[str, Any]] = {
    SEALED: {"sealed_sessions": SESSIONS, "list_digest": name("list")},
    SHARED: {"share_digest": name("share")},
    RECONSTRUCTED: {"next_version": 1},
    ABORTED: {"reason": "too few sessions"},
    DISCARDED: {"reason": "its sum is impossible"},
}
WAYS = {ABORTED: [OPEN, ABORTED], DISCARDED: [OPEN, SEALING, SEALED, SHARED, DISCARDED]}  # that end without a result

pytestmark = pytest.mark.asyncio


async def ready_round(ledger: Ledger, state: RoundState = OPEN) -> bytes:
    """Open a round with three complete sessions and take it as far as `state`."""
    round_id = await open_round(ledger)
    for session_id in SESSIONS:
        await complete_session(ledger, round_id, session_id)
    way = WAYS.get(state) or WAY[: WAY.index(state) + 1]
    for expect, to in pairwise(way):
        await ledger.advance(round_id, expect, to, NOW, **FACTS.get(to, {}))
    return round_id


async def test_a_new_round_is_open_and_knows_what_it_was_given(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    new = new_round(1)
    stored = await ledger.create_round(new)
    assert stored == await ledger.round(new.round_id)
    assert stored.state is OPEN
    assert not stored.ended
    facts = (stored.sealed_sessions, stored.list_digest, stored.share_digest, stored.next_version, stored.reason)
    assert facts == (None,) * 5
    for field in ("task_id", "number", "kind", "model_version", "spec", "opened_at", "join_until", "upload_until"):
        assert getattr(stored, field) == getattr(new, field)


async def test_creating_a_round_again_returns_the_first_with_its_deadlines(ledger: Ledger) -> None:
    await open_round(ledger)
    again = await ledger.create_round(new_round(1, opened_at=NOW + 5, join_until=NOW + 99))
    assert (again.opened_at, again.join_until) == (NOW, NOW + 60)


async def test_a_number_of_a_task_belongs_to_one_round(ledger: Ledger) -> None:
    await open_round(ledger)
    with pytest.raises(LedgerConflictError, match="round 1 of this task"):
        await ledger.create_round(new_round(1, round_id=name("another"), spec=b"another"))
    with pytest.raises(LedgerConflictError, match="different contents"):
        await ledger.create_round(new_round(1, kind="survey"))
    assert [found.kind for found in await ledger.rounds(TASK)] == ["train"]


async def test_a_round_needs_a_task(ledger: Ledger) -> None:
    with pytest.raises(NotRecordedError, match="task"):
        await ledger.create_round(new_round(1))


async def test_the_current_round_is_the_latest_that_has_not_ended(ledger: Ledger) -> None:
    assert await ledger.current_round(TASK) is None
    assert await ledger.last_round(TASK) is None
    first, second = [await open_round(ledger, number) for number in (1, 2)]
    await end_round(ledger, second)
    current, last = await ledger.current_round(TASK), await ledger.last_round(TASK)
    assert current is not None
    assert last is not None
    assert (current.round_id, last.round_id) == (first, second)
    await end_round(ledger, first)
    assert await ledger.current_round(TASK) is None


async def test_rounds_are_listed_page_by_page_the_newest_first(ledger: Ledger) -> None:
    for number in range(1, 8):
        await open_round(ledger, number)
    await open_round(ledger, 9, task_id=name("other task"))
    assert [found.number for found in await ledger.rounds(TASK, limit=3)] == [7, 6, 5]
    assert [found.number for found in await ledger.rounds(TASK, limit=3, before_number=5)] == [4, 3, 2]
    assert [found.number for found in await ledger.rounds(TASK, before_number=2)] == [1]


async def test_a_round_goes_its_whole_way_and_keeps_every_time_and_fact(ledger: Ledger) -> None:
    round_id = await ready_round(ledger)
    for step, (expect, to) in enumerate(pairwise(WAY), start=1):
        moved = await ledger.advance(round_id, expect, to, NOW + step, **FACTS.get(to, {}))
        assert moved == await ledger.round(round_id)
        assert moved.state is to
    times = (moved.sealing_at, moved.sealed_at, moved.shared_at, moved.reconstructed_at, moved.ended_at)
    assert times == tuple(NOW + step for step in range(1, 6))
    assert moved.sealed_sessions == tuple(sorted(SESSIONS))
    assert (moved.list_digest, moved.share_digest, moved.next_version) == (name("list"), name("share"), 1)
    assert moved.ended


@pytest.mark.parametrize("state", list(RoundState))
async def test_no_other_step_than_the_allowed_ones_is_made(ledger: Ledger, state: RoundState) -> None:
    round_id = await ready_round(ledger, state)
    before = await ledger.round(round_id)
    for to in set(RoundState) - {state}:
        if not allowed(state, to):
            with pytest.raises(StateConflictError) as caught:
                await ledger.advance(round_id, state, to, NOW, **FACTS.get(to, {}))
            assert caught.value.state is state
    assert await ledger.round(round_id) == before


@pytest.mark.parametrize("state", [SEALING, SEALED, SHARED, RECONSTRUCTED, PUBLISHED, ABORTED, DISCARDED])
async def test_a_repeated_step_changes_nothing(ledger: Ledger, state: RoundState) -> None:
    round_id = await ready_round(ledger, state)
    before = await ledger.round(round_id)
    expect = (WAYS.get(state) or WAY[: WAY.index(state) + 1])[-2]
    assert await ledger.advance(round_id, expect, state, NOW + 50, **FACTS.get(state, {})) == before
    assert await ledger.round(round_id) == before


@pytest.mark.parametrize(
    ("state", "other"),
    [
        (SEALED, {"sealed_sessions": SESSIONS[:2], "list_digest": name("list")}),
        (SEALED, {"sealed_sessions": SESSIONS, "list_digest": name("other list")}),
        (SHARED, {"share_digest": name("other share")}),
        (SHARED, {"share_digest": name("share"), "next_version": 1}),
        (RECONSTRUCTED, {"next_version": 2}),
        (ABORTED, {"reason": "another reason"}),
    ],
)
async def test_a_repeated_step_with_other_facts_is_refused(
    ledger: Ledger, state: RoundState, other: dict[str, Any]
) -> None:
    round_id = await ready_round(ledger, state)
    before = await ledger.round(round_id)
    expect = OPEN if state is ABORTED else WAY[WAY.index(state) - 1]
    with pytest.raises(StateConflictError) as caught:
        await ledger.advance(round_id, expect, state, NOW, **other)
    assert caught.value.state is state
    assert await ledger.round(round_id) == before


async def test_a_fact_once_stored_is_not_changed_by_a_later_step(ledger: Ledger) -> None:
    round_id = await ready_round(ledger, SEALED)
    with pytest.raises(StateConflictError, match="different list_digest"):
        await ledger.advance(round_id, SEALED, SHARED, NOW, share_digest=name("share"), list_digest=name("other list"))


async def test_a_step_from_a_state_the_round_has_left_is_refused(ledger: Ledger) -> None:
    round_id = await ready_round(ledger, SHARED)
    with pytest.raises(StateConflictError, match="the round is shared"):
        await ledger.advance(round_id, SEALING, SEALED, NOW, **FACTS[SEALED])


@pytest.mark.parametrize(
    ("state", "to", "given"),
    [
        (SEALING, SEALED, {"list_digest": name("list")}),
        (SEALING, SEALED, {"sealed_sessions": SESSIONS}),
        (SEALED, SHARED, {}),
        (OPEN, ABORTED, {}),
    ],
)
async def test_a_step_needs_its_facts(ledger: Ledger, state: RoundState, to: RoundState, given: dict[str, Any]) -> None:
    round_id = await ready_round(ledger, state)
    with pytest.raises(LedgerFormatError, match="without"):
        await ledger.advance(round_id, state, to, NOW, **given)


@pytest.mark.parametrize("listed", [[*SESSIONS, SESSIONS[0]], [b"short"]])
async def test_a_list_names_each_session_once_by_sixteen_bytes(ledger: Ledger, listed: list[bytes]) -> None:
    round_id = await ready_round(ledger, SEALING)
    with pytest.raises(LedgerFormatError, match="16-byte"):
        await ledger.advance(round_id, SEALING, SEALED, NOW, sealed_sessions=listed, list_digest=name("list"))


async def test_a_list_with_a_session_that_is_not_complete_here_is_refused(ledger: Ledger) -> None:
    round_id = await ready_round(ledger, SEALING)
    listed = [*SESSIONS, name("never seen", 16)]
    with pytest.raises(StateConflictError, match="not complete here"):
        await ledger.advance(round_id, SEALING, SEALED, NOW, sealed_sessions=listed, list_digest=name("list"))
    found = await ledger.round(round_id)
    assert found is not None
    assert found.state is SEALING


async def test_an_unknown_round_is_said_to_be_unknown(ledger: Ledger) -> None:
    assert await ledger.round(name("unknown")) is None
    with pytest.raises(NotRecordedError, match="round"):
        await ledger.advance(name("unknown"), OPEN, SEALING, NOW)
