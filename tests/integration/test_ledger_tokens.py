"""Enrolment tokens in the ledger: hashes by the name of a device, one after the other, on both databases."""

import asyncio
import os
from hashlib import sha256

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from tests.integration.databases import NOW, name

from secemb_party.errors import LedgerFormatError, TokenConflictError, UnknownTokenError
from secemb_party.ledger import Added, Ledger, NewToken, TokenState, schema
from secemb_party.ledger.ledger import _open_database
from secemb_party.operators import Order

HASH, OTHER, THIRD = name("token"), name("other token"), name("third token")
ORDER = Order("backend", "a new phone")
MANY = 200_000 if os.environ.get("SOAK_TESTS") else 20_000  # `make soak` has a fleet's

pytestmark = pytest.mark.asyncio


async def add(ledger: Ledger, *new: NewToken, now: float = NOW) -> list[Added]:
    return await ledger.add_tokens(new, ORDER, now)


async def test_a_token_is_known_by_its_hash(ledger: Ledger) -> None:
    assert await add(ledger, NewToken("phone", HASH)) == [Added.ADDED]
    stored = await ledger.token(HASH)
    assert stored is not None
    assert (stored.name, stored.device, stored.generation, stored.created_at) == ("phone", HASH, 0, NOW)
    assert stored.state(NOW) is TokenState.ACTIVE
    assert await ledger.token(OTHER) is None
    assert HASH.hex() not in repr(stored)
    assert repr(HASH) not in repr(stored)


async def test_a_token_expires_at_its_moment(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", HASH, NOW + 10))
    stored = await ledger.token(HASH)
    assert stored is not None
    assert (stored.state(NOW + 9.9), stored.state(NOW + 10)) == (TokenState.ACTIVE, TokenState.EXPIRED)


async def test_adding_again_changes_nothing_and_each_is_told_what_became_of_it(ledger: Ledger) -> None:
    new = [NewToken("phone", HASH), NewToken("tablet", OTHER)]
    assert await add(ledger, *new) == [Added.ADDED, Added.ADDED]
    before = await ledger.tokens(limit=10)
    again = [*new, NewToken("phone", THIRD), NewToken("watch", OTHER), NewToken("car", THIRD), NewToken("car", THIRD)]
    assert await add(ledger, *again, now=NOW + 1) == [
        *(Added.SAME, Added.SAME, Added.NAME_TAKEN, Added.TOKEN_TAKEN),
        *(Added.ADDED, Added.SAME),
    ]
    assert [one for one in await ledger.tokens(limit=10) if one.name != "car"] == before
    assert [one.data for one in await ledger.actions()] == [{"tokens": 1}, {"tokens": 2}]
    (done,) = {(one.by, one.reason, one.what) for one in await ledger.actions()}
    assert done == (ORDER.by, ORDER.reason, "token create")


async def test_of_two_processes_that_add_a_name_at_once_one_succeeds(ledger: Ledger, rival: Ledger) -> None:
    new = [NewToken("phone", HASH)], [NewToken("phone", OTHER)]
    outcomes = await asyncio.gather(ledger.add_tokens(new[0], ORDER, NOW), rival.add_tokens(new[1], ORDER, NOW))
    assert sorted(outcome for (outcome,) in outcomes) == [Added.ADDED, Added.NAME_TAKEN]
    assert len(await ledger.tokens(limit=10)) == 1


async def test_the_next_token_leads_to_the_same_device_and_the_old_one_ends_soon(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", HASH), NewToken("tablet", THIRD))
    for _ in range(2):  # a repeated call changes nothing
        await ledger.replace_token(NewToken("phone", OTHER, NOW + 99), ORDER, NOW + 1, overlap=10)
    first, second, tablet = await ledger.tokens(limit=10)
    assert (first.token_hash, first.expires_at, first.generation) == (HASH, NOW + 11, 0)
    assert (second.token_hash, second.expires_at, second.generation) == (OTHER, NOW + 99, 1)
    assert first.device == second.device == HASH
    assert tablet.expires_at is None
    assert [one.what for one in await ledger.actions()] == ["token replace", "token create"]


async def test_replacing_never_lengthens_the_life_of_a_token(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", HASH, NOW + 5))
    await ledger.replace_token(NewToken("phone", OTHER), ORDER, NOW, overlap=10)
    stored = await ledger.token(HASH)
    assert stored is not None
    assert stored.expires_at == NOW + 5


async def test_what_is_unknown_revoked_or_was_used_before_does_not_replace(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", HASH), NewToken("tablet", OTHER))
    with pytest.raises(UnknownTokenError, match="create its first token"):
        await ledger.replace_token(NewToken("watch", THIRD), ORDER, NOW, overlap=0)
    with pytest.raises(TokenConflictError, match="used before"):
        await ledger.replace_token(NewToken("phone", OTHER), ORDER, NOW, overlap=0)
    await ledger.revoke_tokens(["phone"], ORDER, NOW)
    with pytest.raises(TokenConflictError, match="enrol it under another name"):
        await ledger.replace_token(NewToken("phone", THIRD), ORDER, NOW, overlap=0)
    assert await add(ledger, NewToken("phone", THIRD)) == [Added.NAME_TAKEN]


async def test_revoking_ends_every_token_of_a_device_once(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", HASH), NewToken("tablet", THIRD))
    await ledger.replace_token(NewToken("phone", OTHER), ORDER, NOW, overlap=99)
    assert await ledger.revoke_tokens(["phone", "nobody"], ORDER, NOW + 1) == 1
    assert await ledger.revoke_tokens(["phone"], ORDER, NOW + 2) == 0
    assert [one.revoked_at for one in await ledger.tokens(limit=10)] == [NOW + 1, NOW + 1, None]
    assert [one.what for one in await ledger.actions()] == ["token revoke", "token replace", "token create"]


async def test_a_replacement_and_a_revocation_at_once_leave_no_open_token(ledger: Ledger, rival: Ledger) -> None:
    for number in range(8):
        await add(ledger, NewToken(f"phone {number}", name(f"first {number}")))
        calls = (
            ledger.replace_token(NewToken(f"phone {number}", name(f"next {number}")), ORDER, NOW, overlap=99),
            rival.revoke_tokens([f"phone {number}"], ORDER, NOW),
        )
        await asyncio.gather(*calls, return_exceptions=True)
    assert {one.state(NOW) for one in await ledger.tokens(limit=100)} == {TokenState.REVOKED}


async def test_a_device_is_found_by_name_or_by_the_beginning_of_a_hash(ledger: Ledger) -> None:
    await add(ledger, NewToken("phone", b"\xab" * 31 + b"\x00"), NewToken("tablet", b"\xab" * 31 + b"\x01"))
    assert await ledger.find_device("phone") == "phone"
    assert await ledger.find_device("ab" * 31 + "01") == "tablet"
    for words in ("unknown", "ab" * 3, "AB" * 4, "cd" * 4, "ab" * 33):
        with pytest.raises(UnknownTokenError):
            await ledger.find_device(words)
    with pytest.raises(TokenConflictError, match="more than one"):
        await ledger.find_device("ab" * 31)


@pytest.mark.parametrize("words", ["", "x" * 101, "a\0b", "two\nlines", " around "])
async def test_a_device_needs_a_name_that_can_be_stored_and_shown(ledger: Ledger, words: str) -> None:
    with pytest.raises(LedgerFormatError):
        await add(ledger, NewToken("fine", OTHER), NewToken(words, HASH))
    assert await ledger.tokens(limit=10) == []


async def test_tokens_are_listed_page_by_page(ledger: Ledger) -> None:
    await add(ledger, *(NewToken(f"phone {number}", name(str(number))) for number in range(5)))
    await ledger.replace_token(NewToken("phone 1", OTHER), ORDER, NOW, overlap=9)
    found, after = [], ("", 0)
    while page := await ledger.tokens(after=after, limit=2):
        found += page
        after = page[-1].name, page[-1].generation
    assert [(one.name, one.generation) for one in found] == [
        *(("phone 0", 0), ("phone 1", 0), ("phone 1", 1)),
        *(("phone 2", 0), ("phone 3", 0), ("phone 4", 0)),
    ]


async def test_a_fleets_tokens_are_added_and_one_is_found_by_an_index(ledger: Ledger) -> None:
    hashes = [sha256(str(number).encode()).digest() for number in range(MANY)]
    for first in range(0, MANY, 5000):
        batch = range(first, first + 5000)
        await add(ledger, *(NewToken(f"phone {number}", hashes[number]) for number in batch))
    chosen = MANY * 5 // 8
    stored = await ledger.token(hashes[chosen])
    assert stored is not None
    assert stored.name == f"phone {chosen}"
    plan = await ledger._database.read(lambda tx: _plan(tx, stored.token_hash))
    assert "USING INDEX" in plan or "Index Scan using pk_tokens" in plan, plan


def _plan(tx: Connection, token_hash: bytes) -> str:
    """Return how the database looks a token up, as a join does."""
    explain = "EXPLAIN QUERY PLAN" if tx.dialect.name == "sqlite" else "EXPLAIN"
    found = tx.execute(text(f"{explain} SELECT * FROM tokens WHERE token_hash = :hash"), {"hash": token_hash})
    return "\n".join(str(row[-1]) for row in found)


async def test_tokens_of_an_earlier_version_stay_the_devices_that_they_were(place: str) -> None:
    database = await _open_database(place, create=True)
    try:
        await database.write(_make_second_version)
    finally:
        await database.close()
    async with await Ledger.open(place, migrate=True) as ledger:
        first, revoked = await ledger.tokens(limit=10)
        assert (first.name, first.token_hash, first.device, first.generation) == ("phone", HASH, HASH, 0)
        assert (first.created_at, first.expires_at, first.revoked_at) == (NOW, None, None)
        assert (revoked.name, revoked.device, revoked.revoked_at) == ("tablet", OTHER, NOW + 1)
        assert await add(ledger, NewToken("phone", THIRD)) == [Added.NAME_TAKEN]


def _make_second_version(tx: Connection) -> None:
    """Make the tables as they were before devices had several tokens, with two tokens."""
    context = MigrationContext.configure(tx, opts={"version_table": schema.VERSION_TABLE})
    place = str(schema.MIGRATIONS[0])
    scripts = ScriptDirectory(place, version_locations=[place])
    for script in reversed(list(scripts.iterate_revisions("0002", "base"))):
        script.module.upgrade(Operations(context))
    context.stamp(scripts, "0002")
    add_row = text("INSERT INTO tokens (token_hash, name, created_at, revoked_at) VALUES (:hash, :name, :now, :end)")
    tx.execute(add_row, {"hash": HASH, "name": "phone", "now": NOW, "end": None})
    tx.execute(add_row, {"hash": OTHER, "name": "tablet", "now": NOW, "end": NOW + 1})
