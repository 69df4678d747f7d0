"""Where the tables are: one interface over SQLite and PostgreSQL, and one translation of what goes wrong.

The functions at the end are for statements in which the two databases differ.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Insert, Table, bindparam, func, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from secemb_party.errors import (
    LedgerError,
    LedgerFullError,
    LedgerSettingError,
    LedgerTakenError,
    LedgerUnavailableError,
)

T = TypeVar("T")
Work = Callable[[Connection], T]
# 53100 is PostgreSQL's disk_full. SQLite has a file beside its own that must grow before anything is read.
_FULL = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100"}
Measure = Callable[[str], AbstractContextManager[None]]


class Database(Protocol):
    """Runs functions inside transactions. They are plain functions, so that each database runs them as it does best."""

    async def read(self, work: Work[T]) -> T:
        """Run one statement that changes nothing."""

    async def write(self, work: Work[T]) -> T:
        """Run a function as one transaction: when this returns it is on the disk, when it raises nothing happened."""

    async def claim(self, *, patience: float = 0.0) -> None:
        """Make sure that no other process has claimed this database; wait so many seconds for one that is ending."""

    async def close(self) -> None:
        """Wait for running work, then release everything."""


class MeasuredDatabase:
    """A database whose calls are measured, from the request to the answer, with the time they wait for their turn."""

    def __init__(self, database: Database, measure: Measure) -> None:
        self._database, self._measure = database, measure

    async def read(self, work: Work[T]) -> T:
        """Run one statement that changes nothing."""
        with self._measure("read"):
            return await self._database.read(work)

    async def write(self, work: Work[T]) -> T:
        """Run a function as one transaction."""
        with self._measure("write"):
            return await self._database.write(work)

    async def claim(self, *, patience: float = 0.0) -> None:
        """Make sure that no other process has claimed this database."""
        await self._database.claim(patience=patience)

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()


def taken() -> LedgerTakenError:
    """Return the error of a claim that another process has made before."""
    return LedgerTakenError("another server process is using this ledger; stop it, or give this server its own ledger")


def parse(url: str) -> URL:
    """Read a database URL; the message of a refusal does not repeat it, because it may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise LedgerSettingError(
            "invalid ledger URL; use sqlite:////path/to/ledger.db or postgresql://user@host/database"
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """Turn the database's errors into the ledger's.

    They are not chained: the text of a database error may quote the row it is about.
    """
    try:
        yield
    except (IntegrityError, ProgrammingError) as error:
        raise LedgerError(f"the database rejected a statement ({_name(error)})") from None
    except (DBAPIError, PoolTimeout, OSError) as error:  # asyncio's TimeoutError is an OSError
        if _code(error) in _FULL:
            raise LedgerFullError(f"the database's disk is full ({_name(error)})") from None
        raise LedgerUnavailableError(f"the database failed ({_name(error)})") from None


def _name(error: BaseException) -> str:
    code, kind = _code(error), type(_origin(error)).__name__
    return f"{kind} {code}" if code else kind


def _code(error: BaseException) -> str | None:
    origin = _origin(error)
    code: str | None = getattr(origin, "sqlstate", None) or getattr(origin, "sqlite_errorname", None)
    return code


def _origin(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


class Turn(IntEnum):
    """What only one transaction or process does at a time; the numbers name advisory locks and mean nothing else."""

    MIGRATION = 0x5EC_E3B_01
    EVENTS = 0x5EC_E3B_02
    TOKENS = 0x5EC_E3B_04
    SERVING = 0x5EC_E3B_03  # for as long as a server runs


_TAKE_TURN = select(func.pg_advisory_xact_lock(bindparam("turn")))


def writes_alone(tx: Connection) -> bool:
    """Return whether a writing transaction is the only one there is: in SQLite it is."""
    return tx.dialect.name == "sqlite"


def insert_new(tx: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key is there; return whether it was inserted."""
    return tx.execute(_insertion(table, tx.dialect.name), dict(row)).rowcount == 1


@cache  # a statement that is kept is compiled once
def _insertion(table: Table, dialect: str) -> Insert:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def take_turn(tx: Connection, turn: Turn) -> None:
    """Wait until no other transaction has this turn; it ends with the transaction."""
    if not writes_alone(tx):
        tx.execute(_TAKE_TURN, {"turn": int(turn)})


def hold_snapshot(tx: Connection) -> None:
    """Let every statement from here on see one moment, while others write; call it before the first statement."""
    tx.exec_driver_sql("BEGIN" if writes_alone(tx) else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
