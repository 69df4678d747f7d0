"""What the ledger says when it cannot: a typed error that names the fix and gives nothing away."""

import asyncio
import sqlite3
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert
from tests.integration.databases import NOW, TASK, Postgres, name, open_round, upload

from secemb_party.errors import LedgerError, LedgerSettingError, LedgerUnavailableError
from secemb_party.evaluation import SessionBodies
from secemb_party.ledger import Ledger, sqlite
from secemb_party.ledger.schema import bodies
from secemb_shared.errors import SecEmbError

PASSWORD = "correct-horse"

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        (f"mysql://user:{PASSWORD}@host/database", "SQLite .* or PostgreSQL"),
        (f"no url at all {PASSWORD}", "use sqlite:////path/to/ledger.db"),
        (f"postgresql://user:{PASSWORD}@host:port/database", "use sqlite:////path/to/ledger.db"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite:///file:ledger?mode=memory&uri=true", "name a file"),
        ("sqlite:////no/such/folder/ledger.db", "cannot create the ledger at /no/such/folder/ledger.db: No such file"),
    ],
)
async def test_a_url_that_cannot_hold_a_ledger_is_refused_with_advice(url: str, advice: str) -> None:
    with pytest.raises(LedgerSettingError, match=advice) as caught:
        await Ledger.open(url, migrate=True)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(LedgerUnavailableError, match="PostgreSQL cannot be reached") as caught:
        await Ledger.open(f"postgresql://user:{PASSWORD}@127.0.0.1:1/database", migrate=False)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


async def test_a_database_that_is_not_there_is_named(postgres: Postgres) -> None:
    url = postgres.empty_database().replace("/postgres?", "/nowhere?")
    with pytest.raises(LedgerUnavailableError, match='database "nowhere" does not exist'):
        await Ledger.open(url, migrate=True)


async def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(LedgerSettingError, match=r"pip install 'secemb\[postgres\]'"):
        await Ledger.open("postgresql://user@host/database", migrate=False)


async def test_a_server_that_acknowledges_what_it_may_lose_is_refused(postgres: Postgres) -> None:
    url = postgres.empty_database()
    postgres.run("ALTER DATABASE postgres SET synchronous_commit = off;")
    try:
        with pytest.raises(LedgerSettingError, match="set synchronous_commit = on"):
            await Ledger.open(url, migrate=True)
    finally:
        postgres.run("ALTER DATABASE postgres RESET synchronous_commit;")
    await (await Ledger.open(url, migrate=True)).close()


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("a shopping list, " * 100, encoding="utf-8")
    with pytest.raises(LedgerUnavailableError, match="NOTADB"):
        await Ledger.open(f"sqlite:///{path}", migrate=True)
    assert path.read_text(encoding="utf-8") == "a shopping list, " * 100


async def test_a_file_that_another_process_holds_is_busy_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "ledger.db"
    async with await Ledger.open(f"sqlite:///{path}", migrate=True) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        calls = [ledger.add_task(name(f"{at}"), b"s", NOW) for at in range(5)]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, LedgerUnavailableError)
            assert "SQLITE_BUSY" in str(answer)
        assert await ledger.tasks() == []  # readers are not held up
        other.execute("ROLLBACK")
        other.close()
        await ledger.add_task(TASK, b"s", NOW)


async def test_a_closed_ledger_says_so_and_may_be_closed_again(place: str) -> None:
    ledger = await Ledger.open(place, migrate=True)
    await ledger.ping()
    for _ in range(2):
        await ledger.close()
        with pytest.raises(LedgerUnavailableError, match="closed"):
            await ledger.ping()
        with pytest.raises(LedgerUnavailableError, match="closed"):
            await ledger.add_task(TASK, b"s", NOW)


def insert_body(row: Mapping[str, object], tx: Connection) -> None:
    tx.execute(insert(bodies), row)


async def test_an_error_of_the_database_does_not_quote_what_it_is_about(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    secret = upload(round_id, name("session", 16), b"a body that nobody may read")
    await ledger.put_keys(secret, NOW, require_admission=False, limit=9)
    row = {"session_id": secret.session_id, "part": "keys", "body": secret.body}
    for wrong in (row, {**row, "part": "other", "session_id": name("no session", 16)}):
        with pytest.raises(LedgerError, match="rejected a statement") as caught:
            await ledger._database.write(partial(insert_body, wrong))
        assert isinstance(caught.value, SecEmbError)
        report = "".join(traceback.format_exception(caught.value))
        assert "a body" not in report
        assert secret.session_id.hex() not in report


async def test_bodies_do_not_show_in_a_repr() -> None:
    body = b"a body that nobody may read"
    for record in (upload(TASK, name("session", 16), body), SessionBodies(name("session", 16), body, body)):
        assert "a body" not in repr(record)
