"""The ledger works with the tables of its own version and with no others."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from tests.integration.databases import NOW, TASK

from secemb_party.errors import SchemaError, SchemaForeignError, SchemaMissingError, SchemaNewerError, SchemaOlderError
from secemb_party.ledger import Ledger, RoundState, allowed, schema
from secemb_party.ledger.schema import METADATA

pytestmark = pytest.mark.asyncio

NEWEST = schema.head()
LATER = f"""
import sqlalchemy as sa

revision = "9999"
down_revision = "{NEWEST}"


def upgrade(op):
    op.add_column("tasks", sa.Column("colour", sa.String(9)))
"""
BROKEN = LATER + '    op.execute("no statement at all")\n'


def later_version(patch: pytest.MonkeyPatch, folder: Path, source: str = LATER) -> None:
    """Make this the code of a later version, which knows one migration more."""
    folder.mkdir(exist_ok=True)
    (folder / "v9999_colour.py").write_text(source, encoding="utf-8")
    patch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, folder])


async def columns_of_tasks(ledger: Ledger) -> set[str]:
    def read(tx: Connection) -> set[str]:
        return {column["name"] for column in inspect(tx).get_columns("tasks")}

    return await ledger._database.read(read)


async def test_an_empty_database_is_filled_only_when_asked_for(place: str) -> None:
    with pytest.raises(SchemaMissingError, match="`secemb serve --migrate` or `secemb ledger upgrade`"):
        await Ledger.open(place, migrate=False)
    for migrate in (True, True, False):
        async with await Ledger.open(place, migrate=migrate) as ledger:
            await ledger.add_task(TASK, b"s", NOW)


async def test_a_refused_sqlite_file_is_not_even_made(tmp_path: Path) -> None:
    with pytest.raises(SchemaMissingError, match="there is no ledger at"):
        await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=False)
    assert os.listdir(tmp_path) == []


async def test_the_migrations_make_the_tables_that_the_code_works_with(ledger: Ledger) -> None:
    def differences(tx: Connection) -> list[object]:
        context = MigrationContext.configure(tx, opts={"version_table": schema.VERSION_TABLE, "compare_type": True})
        return list(compare_metadata(context, METADATA))

    assert await ledger._database.read(differences) == []


async def test_the_numbers_of_the_files_are_the_revisions_in_their_order() -> None:
    place = str(schema.MIGRATIONS[0])
    found = [script.revision for script in ScriptDirectory(place, version_locations=[place]).walk_revisions()]
    assert found[0] == NEWEST
    assert found == sorted((path.name[1:5] for path in schema.MIGRATIONS[0].glob("v*.py")), reverse=True)


async def test_a_server_that_has_its_tables_starts_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await (await Ledger.open(url, migrate=True)).close()
    script = (
        "import asyncio, sys; from secemb_party.ledger import Ledger\n"
        f"async def main(): await (await Ledger.open({url!r}, migrate=True)).close()\n"
        "asyncio.run(main()); assert 'alembic' not in sys.modules"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=True)


async def test_the_document_names_every_table_column_and_state() -> None:
    document = (Path(__file__).parents[2] / "docs" / "reference" / "data-model.md").read_text(encoding="utf-8")
    for table in METADATA.tables.values():
        section = document.partition(f"### `{table.name}`")[2].partition("###")[0]
        assert [column.name for column in table.columns if f"`{column.name}`" not in section] == []
    arrows = {(from_, to) for from_ in RoundState for to in RoundState if f"    {from_} --> {to}:" in document}
    assert arrows == {(from_, to) for from_ in RoundState for to in RoundState if allowed(from_, to)}


async def test_a_database_of_an_earlier_version_is_upgraded_only_when_asked_for(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Ledger.open(place, migrate=True) as ledger:
        await ledger.add_task(TASK, b"s", NOW)
    later_version(monkeypatch, tmp_path / "later")
    with pytest.raises(SchemaOlderError, match=f"has schema {NEWEST}, but this version needs 9999.*ledger upgrade`"):
        await Ledger.open(place, migrate=False)
    async with await Ledger.open(place, migrate=True) as ledger:
        assert "colour" in await columns_of_tasks(ledger)
        assert len(await ledger._database.read(lambda tx: tx.execute(text("SELECT spec FROM tasks")).all())) == 1


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_database_of_a_later_version_is_refused_and_left_as_it_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrate: bool
) -> None:
    with monkeypatch.context() as later:
        later_version(later, tmp_path / "later")
        await (await Ledger.open(place, migrate=True)).close()
    with pytest.raises(SchemaNewerError, match=rf"schema 9999; this version has {NEWEST}\).*install that version"):
        await Ledger.open(place, migrate=migrate)
    later_version(monkeypatch, tmp_path / "later")
    async with await Ledger.open(place, migrate=False) as ledger:
        assert "colour" in await columns_of_tasks(ledger)


async def test_a_migration_that_fails_leaves_the_tables_as_they_were(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await Ledger.open(place, migrate=True)).close()
    with monkeypatch.context() as later:
        later_version(later, tmp_path / "later", BROKEN)
        with pytest.raises(Exception, match="the database"):
            await Ledger.open(place, migrate=True)
    async with await Ledger.open(place, migrate=False) as ledger:
        assert "colour" not in await columns_of_tasks(ledger)


@pytest.mark.parametrize("migrate", [True, False])
async def test_tables_of_something_else_are_left_alone(tmp_path: Path, migrate: bool) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE sessions (cookie TEXT)")
    other.close()
    with pytest.raises(SchemaForeignError, match="another program"):
        await Ledger.open(f"sqlite:///{path}", migrate=migrate)


async def test_every_refusal_is_a_schema_error() -> None:
    for error in (SchemaMissingError, SchemaOlderError, SchemaNewerError, SchemaForeignError):
        assert issubclass(error, SchemaError)


async def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await Ledger.open(f"sqlite:///{path}", migrate=True) as ledger:
        await ledger.add_task(TASK, b"s", NOW)
        modes = {entry.name: oct(entry.stat().st_mode & 0o777) for entry in os.scandir(tmp_path)}
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), "0o600")


async def test_two_ledgers_of_one_process_may_be_opened_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / f'server{party}.db'}" for party in (0, 1)]
    for opened in await asyncio.gather(*[Ledger.open(url, migrate=True) for url in urls]):
        await opened.close()
