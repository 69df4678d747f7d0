"""A ledger goes from one database to the other and arrives row by row as it was."""

import asyncio
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, LargeBinary, String, Table, TypeDecorator, exists, insert, select
from tests.integration.databases import (
    NOW,
    TASK,
    WINDOW,
    Postgres,
    complete_session,
    end_round,
    name,
    new_round,
    open_round,
)

from secemb_party.errors import LedgerArchiveError, LedgerConflictError
from secemb_party.ledger import Ledger, NewToken, RoundState
from secemb_party.ledger.schema import METADATA
from secemb_party.operators import Order

pytestmark = pytest.mark.asyncio

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where a ledger is, and where it should go."""
    kinds = request.param.split(" to ")
    files = [f"sqlite:///{tmp_path / place}.db" for place in ("old", "new")]
    if "postgres" not in kinds:
        return files[0], files[1]
    server: Postgres = request.getfixturevalue("postgres")
    there = server.empty_database()
    return (there, files[1]) if kinds[0] == "postgres" else (files[0], there)


async def fill(ledger: Ledger) -> None:
    """Put rows into every table, with what is hard to carry: bytes, fractions, nothing, quotes and other letters."""
    first = await open_round(ledger, 1)
    await ledger.admit(
        first, name("session 0", 16), device=name("device 0"), limit=9, waiting=9, now=NOW + 0.1, window=WINDOW
    )
    for number in range(1, 4):
        await complete_session(ledger, first, name(f"session {number}", 16))
    await end_round(ledger, first, NOW + 1 / 3)
    second = (await ledger.create_round(new_round(2))).round_id
    await complete_session(ledger, second, name("session 5", 16))
    await ledger.advance(second, RoundState.OPEN, RoundState.SEALING, NOW)
    listed: dict[str, Any] = {"sealed_sessions": [name("session 5", 16)], "list_digest": name("list")}
    await ledger.advance(second, RoundState.SEALING, RoundState.SEALED, NOW, **listed)
    await ledger.advance(second, RoundState.SEALED, RoundState.SHARED, NOW, share_digest=name("share"))
    for version in range(3):
        await ledger.record_version(TASK, version, name(f"model {version}"), NOW)
        await ledger.publish_version(TASK, version, NOW)
    await ledger.request_rollback(TASK, seen=2, source=1, order=Order("alice", "worse"), now=NOW)
    for text in ("é", "Z", "a", "_", "quote ' and \" and \\ and\ttab"):
        new = NewToken(text.replace("\t", " "), name(f"token {text}"), NOW + 1 / 7)
        await ledger.add_tokens([new], Order("alice"), NOW)
        await ledger.remember(text, text.encode(), NOW)
    await ledger.replace_token(NewToken("Z", name("next token")), Order("alice"), NOW, overlap=0.1)
    await ledger.revoke_tokens(["a"], Order("alice"), NOW + 2)
    for table in METADATA.sorted_tables:
        await ledger._database.write(partial(add_row, table))


def add_row(table: Table, tx: Connection) -> None:
    """Give a table that this file does not know a row, whatever its columns are."""
    if not tx.execute(select(exists().select_from(table))).scalar_one():
        tx.execute(insert(table), {column.name: value_for(tx, column) for column in table.columns})


def value_for(tx: Connection, column: Column[Any]) -> Any:
    for key in column.foreign_keys:
        return tx.execute(select(key.column).limit(1)).scalar_one()
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(kind, LargeBinary):
        return bytes(range(getattr(column.type, "size", 5)))
    return "text" if isinstance(kind, String) else kind.python_type(1)


async def rows_of(ledger: Ledger) -> Rows:
    """Return every row of every table, in an order that does not depend on the database."""
    found: Rows = {}
    for table in METADATA.sorted_tables:
        found[table.name] = await ledger._database.read(partial(read_rows, table))
    return found


def read_rows(table: Table, tx: Connection) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in tx.execute(select(table))), key=repr)


async def export(ledger: Ledger) -> bytes:
    file = io.BytesIO()
    await ledger.write_archive(file)
    return file.getvalue()


async def test_every_row_of_every_table_arrives_as_it_was(urls: tuple[str, str]) -> None:
    async with await Ledger.open(urls[0], migrate=True) as old, await Ledger.open(urls[1], migrate=True) as new:
        await fill(old)
        before, file = await rows_of(old), await export(old)
        assert all(before.values()), "every table has rows"
        counts = await new.read_archive(io.BytesIO(file))
        assert await rows_of(new) == before
        assert counts == {table: len(rows) for table, rows in before.items()}
        assert await export(new) == file, "equal ledgers make equal files"


async def test_the_new_ledger_goes_on_where_the_old_one_stopped(urls: tuple[str, str]) -> None:
    async with await Ledger.open(urls[0], migrate=True) as old, await Ledger.open(urls[1], migrate=True) as new:
        await fill(old)
        last = await old.append_event("remark", {}, NOW)
        await new.read_archive(io.BytesIO(await export(old)))
        assert await new.append_event("remark", {}, NOW) == last + 1
        held = await new.current_round(TASK)
        assert held is not None
        moved = await new.advance(held.round_id, RoundState.SHARED, RoundState.RECONSTRUCTED, NOW, next_version=3)
        assert moved.state is RoundState.RECONSTRUCTED


async def test_an_archive_is_of_one_moment_while_others_write(home: str) -> None:
    """A round and its event are one transaction: no archive has one without the other."""
    async with await Ledger.open(home, migrate=False) as ledger, await Ledger.open(home, migrate=False) as other:
        await open_round(ledger, 1)

        async def write() -> None:
            for number in range(2, 40):
                made = await other.create_round(new_round(number))
                await end_round(other, made.round_id)

        writing = asyncio.create_task(write())
        while not writing.done():
            lines = [json.loads(line) for line in (await export(ledger)).splitlines()[1:-1]]
            ended = sum(table == "rounds" and "aborted" in row for table, row in lines)
            assert sum(table == "events" for table, _ in lines) == ended
            await asyncio.sleep(0)
        await writing


async def test_a_ledger_that_is_in_use_is_not_overwritten(ledger: Ledger) -> None:
    await open_round(ledger, 1)
    before, file = await rows_of(ledger), await export(ledger)
    with pytest.raises(LedgerConflictError, match="empty database"):
        await ledger.read_archive(io.BytesIO(file))
    assert await rows_of(ledger) == before


async def test_a_file_that_is_not_whole_and_of_this_schema_is_refused_and_nothing_stored(tmp_path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{tmp_path}/old.db", migrate=True) as old:
        await fill(old)
        file = await export(old)
    lines = file.splitlines(keepends=True)
    head = json.loads(lines[0]) | {"schema": "9999"}
    faults = {
        "truncated": b"".join(lines[:-1]),
        "truncated or corrupted": b"".join(lines[:3] + lines[4:]),
        "corrupted": file.replace(b'"rounds",', b'"rounde",', 1),
        "not an exported ledger": b"{}\n" + file,
        "not an exported": b"\x00\xff",
        "schema 9999": json.dumps(head).encode() + b"\n" + b"".join(lines[1:]),
    }
    async with await Ledger.open(f"sqlite:///{tmp_path}/new.db", migrate=True) as new:
        for words, content in faults.items():
            with pytest.raises(LedgerArchiveError, match=words):
                await new.read_archive(io.BytesIO(content))
        with pytest.raises(LedgerArchiveError):
            await new.read_archive(io.BytesIO(b""))
        assert not any((await rows_of(new)).values())
        await new.read_archive(io.BytesIO(file))
