"""The shared database: PostgreSQL through asyncpg."""

from contextlib import AsyncExitStack
from typing import TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from secemb_party.errors import LedgerSettingError, LedgerUnavailableError
from secemb_party.ledger.database import Work, translated

T = TypeVar("T")

_CONNECTIONS = 8
_CONNECT_SECONDS = 10
_SETTINGS = {
    "application_name": "secemb",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "60s",  # a frozen process must not lock a round forever
}


class PostgresDatabase:
    """A ledger in its own PostgreSQL database."""

    def __init__(self, url: URL) -> None:
        self._engine = _make_engine(url)
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Run one statement that changes nothing."""
        return await self.write(work)

    async def write(self, work: Work[T]) -> T:
        """Run a function as one transaction."""
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            with translated():
                async with connection.begin():
                    return await connection.run_sync(work)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._engine.dispose()

    async def _connect(self, stack: AsyncExitStack) -> AsyncConnection:
        if self._closed:  # the pool would quietly reconnect
            raise LedgerUnavailableError("the ledger is closed")
        try:
            return await stack.enter_async_context(self._engine.connect())
        except Exception as error:  # from here the driver's own errors come as they are, and there are many
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise LedgerUnavailableError(f"PostgreSQL cannot be reached: {reason or type(reason).__name__}") from None


async def open_postgres(url: URL) -> PostgresDatabase:
    """Connect, and refuse a server that acknowledges what it may lose."""
    database = PostgresDatabase(url)
    try:
        await database.read(_check_durable)
    except BaseException:
        await database.close()
        raise
    return database


def _make_engine(url: URL) -> AsyncEngine:
    try:
        return create_async_engine(
            url.set(drivername="postgresql+asyncpg"),
            hide_parameters=True,
            isolation_level="READ COMMITTED",  # what the row locks of the ledger are made for
            pool_pre_ping=True,  # a restart of the server costs the next call a reconnect and nothing else
            pool_size=_CONNECTIONS,
            max_overflow=0,
            connect_args={"timeout": _CONNECT_SECONDS, "command_timeout": 60, "server_settings": _SETTINGS},
        )
    except ModuleNotFoundError:
        raise LedgerSettingError("PostgreSQL needs a driver: pip install 'secemb[postgres]'") from None


def _check_durable(tx: Connection) -> None:
    for setting in ("fsync", "synchronous_commit"):
        if tx.exec_driver_sql(f"SHOW {setting}").scalar_one() == "off":
            raise LedgerSettingError(f"PostgreSQL may lose what it acknowledged: set {setting} = on for this database")
