"""The database of the ledger: one interface over SQLite and PostgreSQL, and one translation of their errors.

The functions at the end are for statements that differ between the two databases.
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
# 53100 is PostgreSQL's disk_full. SQLite has a second file that must grow before anything is read.
_FULL = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100"}
Measure = Callable[[str], AbstractContextManager[None]]


class Database(Protocol):
    """Runs functions inside transactions. They are plain functions, so each database can run them in its own way."""

    async def read(self, work: Work[T]) -> T:
        """Run one statement that changes nothing."""

    async def write(self, work: Work[T]) -> T:
        """Run a function as one transaction: if this returns, it is on disk; if this raises, nothing has changed."""

    async def claim(self, *, patience: float = 0.0, shared: bool = False) -> None:
        """Make sure that no other process has claimed this database; wait this many seconds for one that is ending.

        Processes with a shared claim tolerate each other.
        """

    async def conduct(self) -> bool:
        """Return whether this process, which has a claim, has the conductor's lock; take it if it is free."""

    async def close(self) -> None:
        """Wait for running calls, then release all resources."""


class MeasuredDatabase:
    """A database whose calls are measured, from the request to the answer, including the time they wait."""

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

    async def claim(self, *, patience: float = 0.0, shared: bool = False) -> None:
        """Make sure that no other process has claimed this database."""
        await self._database.claim(patience=patience, shared=shared)

    async def conduct(self) -> bool:
        """Return whether this process has the conductor's lock; take it if it is free."""
        return await self._database.conduct()

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()


def taken() -> LedgerTakenError:
    """Return the error for a database that another process has claimed."""
    return LedgerTakenError(
        "another server process is using this ledger; stop it, or give this server its own ledger. Replicas of one"
        " server all need [ledger] shared = true"
    )


def parse(url: str) -> URL:
    """Parse a database URL; error messages do not repeat it, because it may contain a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise LedgerSettingError(
            "invalid ledger URL; use sqlite:////path/to/ledger.db or postgresql://user@host/database"
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """Translate the database's errors into the ledger's.

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
    """Operations that only one transaction or process may do at a time; the numbers identify advisory locks."""

    MIGRATION = 0x5EC_E3B_01
    EVENTS = 0x5EC_E3B_02
    TOKENS = 0x5EC_E3B_04
    SERVING = 0x5EC_E3B_03  # held while a server runs; shared by its replicas
    CONDUCTING = 0x5EC_E3B_05  # held by the process of a server that conducts the rounds


_TAKE_TURN = select(func.pg_advisory_xact_lock(bindparam("turn")))


def writes_alone(tx: Connection) -> bool:
    """Return whether there is only one writing transaction at a time: in SQLite, yes."""
    return tx.dialect.name == "sqlite"


def insert_new(tx: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key exists; return whether it was inserted."""
    return tx.execute(_insertion(table, tx.dialect.name), dict(row)).rowcount == 1


@cache  # statements that are kept are compiled only once
def _insertion(table: Table, dialect: str) -> Insert:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def take_turn(tx: Connection, turn: Turn) -> None:
    """Wait until no other transaction holds this lock; it is released at the end of the transaction."""
    if not writes_alone(tx):
        tx.execute(_TAKE_TURN, {"turn": int(turn)})


def hold_snapshot(tx: Connection) -> None:
    """Let all following statements see one snapshot, while others write; call this before the first statement."""
    tx.exec_driver_sql("BEGIN" if writes_alone(tx) else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
