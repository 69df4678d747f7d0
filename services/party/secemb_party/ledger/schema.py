"""The tables of the ledger, the types of their columns, and upgrades of a database to this version."""

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    column,
    inspect,
    select,
    table,
)

from secemb_party.errors import (
    LedgerFormatError,
    SchemaForeignError,
    SchemaMissingError,
    SchemaNewerError,
    SchemaOlderError,
)
from secemb_party.ledger.database import Turn, take_turn


class FixedBytes(TypeDecorator[bytes]):
    """Bytes of a fixed length: 32 for a digest, 16 for a session id."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Accept values of the right length."""
        if value is not None and len(value) != self.size:
            raise LedgerFormatError(f"expected {self.size} bytes, got {len(value)}")
        return value


class ShortText(TypeDecorator[str]):
    """A name or a reason, from one character to a limit; SQLite itself accepts any length."""

    impl = String
    cache_ok = True

    def __init__(self, longest: int) -> None:
        super().__init__(longest)
        self.longest = longest

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Accept texts within the limit, without NUL, which PostgreSQL cannot store."""
        if value is not None and (not 1 <= len(value) <= self.longest or "\0" in value):
            raise LedgerFormatError(f"expected 1 to {self.longest} characters without NUL")
        return value


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_DIGEST = FixedBytes(32)
_SESSION_ID = FixedBytes(16)
# SQLite assigns increasing numbers only in an INTEGER column.
_COUNTER = BigInteger().with_variant(Integer, "sqlite")

tasks: Table = Table(
    "tasks",
    METADATA,
    Column("task_id", _DIGEST, primary_key=True),
    Column("spec", LargeBinary, nullable=False),
    Column("added_at", Double, nullable=False),
    Column("state", ShortText(16)),  # NULL: no operator has started or stopped it; it runs if the settings name it
)

model_versions: Table = Table(
    "model_versions",
    METADATA,
    Column("task_id", _DIGEST, ForeignKey("tasks.task_id"), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", _DIGEST, nullable=False),
    Column("recorded_at", Double, nullable=False),
    Column("published_at", Double),
)

# The operator's requests, each once: while devices saw version `seen`, go back to the numbers of `source`.
rollbacks: Table = Table(
    "rollbacks",
    METADATA,
    Column("task_id", _DIGEST, ForeignKey("tasks.task_id"), primary_key=True),
    Column("seen", BigInteger, primary_key=True, autoincrement=False),
    Column("source", BigInteger, primary_key=True, autoincrement=False),
    Column("wished_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("made", BigInteger),
    Column("reason", ShortText(500)),
)
Index(
    "ix_rollbacks_open",  # one at a time
    rollbacks.c.task_id,
    unique=True,
    sqlite_where=rollbacks.c.ended_at.is_(None),
    postgresql_where=rollbacks.c.ended_at.is_(None),
)

rounds: Table = Table(
    "rounds",
    METADATA,
    Column("round_id", _DIGEST, primary_key=True),
    Column("task_id", _DIGEST, ForeignKey("tasks.task_id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("kind", ShortText(32), nullable=False),
    Column("model_version", BigInteger, nullable=False),
    Column("spec", LargeBinary, nullable=False),
    Column("state", ShortText(16), nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("join_until", Double, nullable=False),
    Column("upload_until", Double, nullable=False),
    Column("sealing_at", Double),
    Column("sealed_at", Double),
    Column("shared_at", Double),
    Column("reconstructed_at", Double),
    Column("ended_at", Double),
    Column("sealed_sessions", LargeBinary),
    Column("list_digest", _DIGEST),
    Column("share_digest", _DIGEST),
    Column("next_version", BigInteger),
    Column("reason", ShortText(500)),
    UniqueConstraint("task_id", "number"),
)
# Every request looks up the running round: this index stays small however many rounds have ended.
Index(
    "ix_rounds_running",
    rounds.c.task_id,
    rounds.c.number,
    sqlite_where=rounds.c.ended_at.is_(None),
    postgresql_where=rounds.c.ended_at.is_(None),
)

# Rows are kept long after their round, because a session id must be used only once. If one is reused even later, it
# shares no key with the first use, because the round is part of every label.
sessions: Table = Table(
    "sessions",
    METADATA,
    Column("session_id", _SESSION_ID, primary_key=True),
    Column("round_id", _DIGEST, ForeignKey("rounds.round_id"), nullable=False),
    Column("device", _DIGEST),  # NULL on server 1, where devices do not join
    Column("admitted_at", Double, nullable=False),
    Column("keys_digest", _DIGEST),
    Column("keys_public", _DIGEST),
    Column("keys_at", Double),
    Column("update_digest", _DIGEST),
    Column("update_public", _DIGEST),
    Column("update_at", Double),
    Column("late_at", Double),  # when a message arrived that the round no longer accepted
    UniqueConstraint("round_id", "device"),  # one session per device and round; also the index for a round's sessions
)

# Separate from their sessions, so that an update does not rewrite the keys and deletion keeps the digests.
bodies: Table = Table(
    "bodies",
    METADATA,
    Column("session_id", _SESSION_ID, ForeignKey("sessions.session_id"), primary_key=True),
    Column("part", ShortText(8), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

tokens: Table = Table(
    "tokens",
    METADATA,
    Column("token_hash", _DIGEST, primary_key=True),
    Column("device", _DIGEST, nullable=False),
    Column("name", ShortText(100), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    UniqueConstraint("name", "generation"),
)

# The outcomes of a device's sessions, for the operator of server 0, which alone knows devices. Rows are kept.
devices: Table = Table(
    "devices",
    METADATA,
    Column("device", _DIGEST, primary_key=True),
    Column("joined", BigInteger, nullable=False),
    Column("completed", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("silent", BigInteger, nullable=False),  # sessions since the last one that finished
    Column("joined_at", Double),
    Column("problem", ShortText(64)),
    Column("problem_at", Double),
    Column("suspended_at", Double),
)

events: Table = Table(
    "events",
    METADATA,
    Column("event_id", _COUNTER, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", ShortText(64), nullable=False),
    Column("data", Text, nullable=False),
    Column("task_id", _DIGEST),  # NULL: about the server, not about one task
    sqlite_autoincrement=True,  # a number is not reused, even after the newest rows were deleted
)
Index("ix_events_task", events.c.task_id, events.c.event_id)

# Rows are kept permanently: who changed what, and why.
actions: Table = Table(
    "actions",
    METADATA,
    Column("action_id", _COUNTER, primary_key=True),
    Column("at", Double, nullable=False),
    Column("by", ShortText(100), nullable=False),
    Column("what", ShortText(64), nullable=False),
    Column("reason", ShortText(500)),
    Column("data", Text, nullable=False),
    Column("task_id", _DIGEST),  # NULL: about the server, not about one task
    sqlite_autoincrement=True,
)

# Operators' instructions that are in force; `round_id` is set if one is about a round.
instructions: Table = Table(
    "instructions",
    METADATA,
    Column("task_id", _DIGEST, ForeignKey("tasks.task_id"), primary_key=True),
    Column("what", ShortText(16), primary_key=True),
    Column("round_id", _DIGEST, ForeignKey("rounds.round_id")),
    Column("by", ShortText(100), nullable=False),
    Column("reason", ShortText(500), nullable=False),
    Column("at", Double, nullable=False),
)

answers: Table = Table(
    "answers",
    METADATA,
    Column("key", ShortText(200), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("stored_at", Double, nullable=False),
)

# One row: the epoch of the process that conducts the rounds.
conductor: Table = Table(
    "conductor",
    METADATA,
    Column("name", ShortText(16), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)


VERSION_TABLE = "schema_version"
MIGRATIONS = [Path(__file__).parent / "migrations"]

_FIX = "run `secemb serve --migrate` or `secemb ledger upgrade`"


def check(tx: Connection) -> None:
    """Raise unless the tables are exactly those of this version."""
    take_turn(tx, Turn.MIGRATION)  # wait for the end of another process's upgrade
    _check(tx)


def upgrade(tx: Connection) -> None:
    """Upgrade the tables to this version, all or nothing; raise if this is not possible."""
    take_turn(tx, Turn.MIGRATION)
    try:
        _check(tx)
    except (SchemaMissingError, SchemaOlderError):
        _run_scripts(tx)


def head() -> str:
    """Return the name of this version's schema."""
    return _revisions()[-1]


def _check(tx: Connection) -> None:
    found = _found(tx)
    if found is None:
        if set(inspect(tx).get_table_names()) & set(METADATA.tables):
            raise SchemaForeignError(
                "the database contains tables of another program; give the ledger its own database"
            )
        raise SchemaMissingError(f"the ledger's database is empty: {_FIX}")
    if found not in _revisions():
        raise SchemaNewerError(
            f"the ledger was written by a later version (schema {found}; this version has {head()}) and cannot be"
            " downgraded; install that version or restore a backup"
        )
    if found != head():
        raise SchemaOlderError(
            f"the ledger has schema {found}, but this version needs {head()}; back it up, then {_FIX}"
        )


def _found(tx: Connection) -> str | None:
    """Return the name of the database's schema, as Alembic has stored it."""
    if not inspect(tx).has_table(VERSION_TABLE):
        return None
    return tx.scalar(select(column("version_num", String)).select_from(table(VERSION_TABLE)))


def _revisions() -> list[str]:
    """Return the names of all schemas in order: the number in each migration's file name."""
    return sorted(path.name[1:5] for folder in MIGRATIONS for path in folder.glob("v[0-9]*.py"))


def _run_scripts(tx: Connection) -> None:
    # Imported here, because only upgrades need it, and a ledger is opened at every start.
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    context = MigrationContext.configure(tx, opts={"version_table": VERSION_TABLE})
    scripts = ScriptDirectory(str(MIGRATIONS[0]), version_locations=[str(folder) for folder in MIGRATIONS])
    for script in reversed(list(scripts.iterate_revisions("head", context.get_current_revision() or "base"))):
        script.module.upgrade(Operations(context))
    context.stamp(scripts, "head")
