"""Where the tables are: one interface over SQLite and PostgreSQL, and one translation of what goes wrong."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection, make_url
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
_FULL = {"SQLITE_FULL", "53100"}  # 53100 is PostgreSQL's disk_full
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
        """Let what is running end, then give everything back."""


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
    return LedgerTakenError(
        "another server process works with this ledger: stop it first, or give this server a ledger of its own"
    )


def parse(url: str) -> URL:
    """Read a database URL; the message of a refusal does not repeat it, because it may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise LedgerSettingError(
            "the ledger's URL is not one: write sqlite:////path/to/ledger.db or postgresql://user@host/database"
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """Turn the database's errors into the ledger's.

    They are not chained: the text of a database error may quote the row it is about.
    """
    try:
        yield
    except (IntegrityError, ProgrammingError) as error:
        raise LedgerError(f"the database refused a statement ({_name(error)})") from None
    except (DBAPIError, PoolTimeout, OSError) as error:  # asyncio's TimeoutError is an OSError
        kind = LedgerFullError if _code(error) in _FULL else LedgerUnavailableError
        raise kind(f"the database failed ({_name(error)})") from None


def _name(error: BaseException) -> str:
    code, kind = _code(error), type(_origin(error)).__name__
    return f"{kind} {code}" if code else kind


def _code(error: BaseException) -> str | None:
    origin = _origin(error)
    code: str | None = getattr(origin, "sqlstate", None) or getattr(origin, "sqlite_errorname", None)
    return code


def _origin(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error
