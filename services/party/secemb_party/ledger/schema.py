"""Which tables a database has, and bringing them to those of this version.

Migrations are Alembic's: one module each under `migrations`. They are run here and not by Alembic's own command, whose
global context cannot serve two ledgers that one process opens at once. Nothing leads back: a downgrade would
drop what later versions have acknowledged.
"""

from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from secemb_party.ledger.errors import SchemaForeignError, SchemaMissingError, SchemaNewerError, SchemaOlderError
from secemb_party.ledger.inserts import Turn, take_turn
from secemb_party.ledger.tables import METADATA

VERSION_TABLE = "schema_version"
MIGRATIONS = [Path(__file__).parent / "migrations"]

_FIX = "run `secemb serve --migrate` or `secemb ledger upgrade`"


def check(tx: Connection) -> None:
    """Raise unless the tables are exactly those of this version."""
    take_turn(tx, Turn.MIGRATION)  # not in the middle of another process's upgrade
    _check(tx, _scripts())


def upgrade(tx: Connection) -> None:
    """Bring the tables to those of this version, all or nothing; raise where that cannot be done."""
    take_turn(tx, Turn.MIGRATION)
    scripts = _scripts()
    try:
        _check(tx, scripts)
    except (SchemaMissingError, SchemaOlderError):
        context = _context(tx)
        for script in reversed(list(scripts.iterate_revisions("head", context.get_current_revision() or "base"))):
            script.module.upgrade(Operations(context))
        context.stamp(scripts, "head")


def _check(tx: Connection, scripts: ScriptDirectory) -> None:
    found, head = _context(tx).get_current_revision(), scripts.get_current_head()
    if found is None:
        if set(inspect(tx).get_table_names()) & set(METADATA.tables):
            raise SchemaForeignError("the database holds tables of something else: give the ledger one of its own")
        raise SchemaMissingError(f"the ledger's database is empty: {_FIX}")
    if found not in {script.revision for script in scripts.walk_revisions()}:
        raise SchemaNewerError(
            f"the ledger was written by a later version (schema {found}, this one has {head}): install that version or"
            " restore a backup; there is no way back"
        )
    if found != head:
        raise SchemaOlderError(f"the ledger has schema {found}, this version needs {head}: back it up, then {_FIX}")


def _context(tx: Connection) -> MigrationContext:
    return MigrationContext.configure(tx, opts={"version_table": VERSION_TABLE})


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS[0]), version_locations=[str(folder) for folder in MIGRATIONS])
