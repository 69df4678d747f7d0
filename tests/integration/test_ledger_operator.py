"""What the operator keeps in the ledger: tokens and events; and answers that the peer always gets alike."""

import pytest
from tests.integration.databases import NOW, name

from secemb_party.errors import LedgerConflictError, LedgerFormatError, NotRecordedError
from secemb_party.ledger import Ledger

HASH, OTHER = name("token"), name("other token")

pytestmark = pytest.mark.asyncio


async def test_a_token_is_known_by_its_hash(ledger: Ledger) -> None:
    stored = await ledger.add_token(HASH, "phones", NOW)
    assert await ledger.token(HASH) == stored
    assert stored.active
    assert await ledger.token(OTHER) is None
    assert HASH.hex() not in repr(stored)
    assert repr(HASH) not in repr(stored)


async def test_adding_a_token_again_changes_nothing(ledger: Ledger) -> None:
    first = await ledger.add_token(HASH, "phones", NOW)
    assert await ledger.add_token(HASH, "phones", NOW + 1) == first
    assert await ledger.tokens() == [first]


async def test_a_name_or_a_token_is_not_used_twice(ledger: Ledger) -> None:
    await ledger.add_token(HASH, "phones", NOW)
    with pytest.raises(LedgerConflictError, match="has this name"):
        await ledger.add_token(OTHER, "phones", NOW)
    with pytest.raises(LedgerConflictError, match="another name"):
        await ledger.add_token(HASH, "tablets", NOW)
    await ledger.revoke_token("phones", NOW)
    with pytest.raises(LedgerConflictError, match="even after it is revoked"):
        await ledger.add_token(OTHER, "phones", NOW)


async def test_a_token_is_revoked_by_name_or_by_the_beginning_of_its_hash(ledger: Ledger) -> None:
    await ledger.add_token(HASH, "phones", NOW)
    await ledger.add_token(OTHER, "tablets", NOW)
    assert not (await ledger.revoke_token("phones", NOW + 1)).active
    assert (await ledger.revoke_token(OTHER.hex()[:9], NOW + 2)).name == "tablets"
    assert [token.revoked_at for token in await ledger.tokens()] == [NOW + 1, NOW + 2]


async def test_revoking_again_keeps_the_first_time(ledger: Ledger) -> None:
    await ledger.add_token(HASH, "phones", NOW)
    first = await ledger.revoke_token("phones", NOW + 1)
    assert await ledger.revoke_token("phones", NOW + 2) == first
    assert await ledger.token(HASH) == first


async def test_an_unknown_short_or_ambiguous_name_revokes_nothing(ledger: Ledger) -> None:
    await ledger.add_token(b"\xab" * 31 + b"\x00", "phones", NOW)
    await ledger.add_token(b"\xab" * 31 + b"\x01", "tablets", NOW)
    for text in ("unknown", "ab" * 3, "AB" * 4, "cd" * 4, "ab" * 33):
        with pytest.raises(NotRecordedError):
            await ledger.revoke_token(text, NOW)
    with pytest.raises(LedgerConflictError, match="more than one"):
        await ledger.revoke_token("ab" * 31, NOW)
    assert all(token.active for token in await ledger.tokens())


@pytest.mark.parametrize("text", ["", "x" * 101, "a\0b"])
async def test_a_token_needs_a_name_that_can_be_stored(ledger: Ledger, text: str) -> None:
    with pytest.raises(LedgerFormatError, match="1 to 100 characters"):
        await ledger.add_token(HASH, text, NOW)
    assert await ledger.tokens() == []


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
