"""What the operator keeps in the ledger: actions and events; and answers that the peer always gets alike."""

import pytest
from tests.integration.databases import NOW

from secemb_party.errors import LedgerFormatError
from secemb_party.ledger import Ledger
from secemb_party.operators import Order

pytestmark = pytest.mark.asyncio


async def test_actions_are_kept_however_many_events_follow(ledger: Ledger) -> None:
    for number in range(3):
        await ledger.record_action(Order("alice", "because" if number else None), "pause", {"round": number}, NOW)
    for _ in range(4):
        await ledger.append_event("tick", {}, NOW, keep=1)
    found = await ledger.actions(limit=2)
    assert [(one.by, one.reason, one.data) for one in found] == [("alice", "because", {"round": at}) for at in (2, 1)]
    (first,) = await ledger.actions(before=found[-1].action_id)
    assert (first.reason, first.data) == (None, {"round": 0})


async def test_events_are_numbered_and_read_in_order(ledger: Ledger) -> None:
    numbers = [await ledger.append_event("round-opened", {"number": at, "who": "β"}, NOW + at) for at in range(5)]
    assert numbers == sorted(set(numbers))
    found = await ledger.events(after_id=numbers[1], limit=2)
    assert [event.event_id for event in found] == numbers[2:4]
    assert (found[0].kind, found[0].at, found[0].data) == ("round-opened", NOW + 2, {"number": 2, "who": "β"})
    assert len(await ledger.events()) == 5


async def test_the_oldest_events_go_and_their_numbers_are_not_used_again(ledger: Ledger) -> None:
    numbers = [await ledger.append_event("tick", {}, NOW, keep=3) for _ in range(6)]
    assert [event.event_id for event in await ledger.events()] == numbers[3:]
    last = await ledger.append_event("tick", {}, NOW, keep=0)
    assert await ledger.events() == []
    assert await ledger.append_event("tick", {}, NOW) > last


@pytest.mark.parametrize("data", [{"key": b"bytes"}, {"loss": float("nan")}, {"long": "x" * 9000}])
async def test_an_event_holds_only_short_json(ledger: Ledger, data: dict[str, object]) -> None:
    with pytest.raises(LedgerFormatError):
        await ledger.append_event("round-opened", data, NOW)
    assert await ledger.events() == []


async def test_the_first_answer_is_the_answer_for_ever(ledger: Ledger, rival: Ledger) -> None:
    assert await ledger.recall("seal 1") is None
    assert await ledger.remember("seal 1", b"first", NOW) == b"first"
    assert await rival.remember("seal 1", b"second", NOW + 1) == b"first"
    assert await ledger.remember("seal 2", b"", NOW) == b""
    assert await rival.recall("seal 1") == b"first"
    assert await rival.recall("seal 2") == b""


async def test_an_answer_needs_a_key_that_can_be_stored(ledger: Ledger) -> None:
    with pytest.raises(LedgerFormatError, match="1 to 200 characters"):
        await ledger.remember("k" * 201, b"value", NOW)
