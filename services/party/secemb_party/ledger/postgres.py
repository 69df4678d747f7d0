"""The ledger in PostgreSQL, through asyncpg."""

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

from sqlalchemy import URL, Connection, bindparam, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from secemb_party.errors import LedgerSettingError, LedgerUnavailableError
from secemb_party.ledger.database import Turn, Work, taken, translated

T = TypeVar("T")

_CONNECTIONS = 8
_CONNECT_SECONDS = 10
_ASK_AGAIN_SECONDS = 0.2
_CLAIM = select(func.pg_try_advisory_lock(bindparam("turn")))
_CLAIM_SHARED = select(func.pg_try_advisory_lock_shared(bindparam("turn")))
# A replica that is paused or cut off loses its claim, and with it the conductor's lock, after this long: PostgreSQL
# ends its connection. A replica that runs uses the connection every second or two.
_REPLICA_IDLE = "SET idle_session_timeout = '6s'"
_SETTINGS = {
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "10s",  # a frozen process must not lock a round or the epoch
    # The claim of a machine that disappeared is released after a minute, not after two hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}


class PostgresDatabase:
    """A ledger in its own PostgreSQL database."""

    def __init__(self, url: URL) -> None:
        self._engine = _make_engine(url)
        self._closed = False
        self._claim: AsyncConnection | None = None  # the claim lasts as long as this connection
        self._conducts = False
        self._claiming = asyncio.Lock()

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

    async def claim(self, *, patience: float = 0.0, shared: bool = False) -> None:
        """Make sure that no other process has claimed this database.

        PostgreSQL drops the claim when the connection breaks, for example in a restart. In that case it is claimed
        again.
        """
        async with self._claiming:
            if self._claim is not None and await _answers(self._claim):
                return
            await self._give_up_claim()
            async with AsyncExitStack() as stack:
                connection = await self._connect(stack)
                with translated():
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                    await _take_turn(connection, patience, shared=shared)
                    if shared:
                        await connection.exec_driver_sql(_REPLICA_IDLE)
                stack.pop_all()  # stays open
                self._claim = connection

    async def conduct(self) -> bool:
        """Return whether this process has the conductor's lock; it is lost with the claim's connection."""
        async with self._claiming:
            if self._claim is None or not await _answers(self._claim):
                self._conducts = False  # `claim` makes a new connection
                return False
            if self._conducts:
                return True
            with translated():
                found = await self._claim.execute(_CLAIM, {"turn": int(Turn.CONDUCTING)})
            self._conducts = bool(found.scalar_one())
            return self._conducts

    async def _give_up_claim(self) -> None:
        claim, self._claim, self._conducts = self._claim, None, False
        if claim is not None:
            with suppress(Exception):  # it is broken
                await claim.invalidate()
                await claim.close()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._give_up_claim()
        await self._engine.dispose()

    async def _connect(self, stack: AsyncExitStack) -> AsyncConnection:
        if self._closed:  # the pool would silently reconnect
            raise LedgerUnavailableError("the ledger is closed")
        try:
            return await stack.enter_async_context(self._engine.connect())
        except Exception as error:  # the driver's own errors are raised here unchanged, and there are many
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise LedgerUnavailableError(f"PostgreSQL cannot be reached: {reason or type(reason).__name__}") from None


async def _answers(connection: AsyncConnection) -> bool:
    try:
        await connection.execute(select(1))
    except (DBAPIError, OSError):
        return False
    return True


async def _take_turn(connection: AsyncConnection, patience: float, *, shared: bool) -> None:
    """Claim the database for this connection; the connection of a process that is ending may take a moment to close."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    claim = _CLAIM_SHARED if shared else _CLAIM
    while not (await connection.execute(claim, {"turn": int(Turn.SERVING)})).scalar_one():
        if loop.time() >= end:
            raise taken()
        await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def open_postgres(url: URL) -> PostgresDatabase:
    """Connect, and refuse a database that could lose acknowledged writes."""
    database = PostgresDatabase(url)
    try:
        await database.read(_check_durable)
    except BaseException:
        await database.close()
        raise
    return database


def _make_engine(url: URL) -> AsyncEngine:
    name = {"application_name": f"secemb {os.getpid()}"}  # which replica has the conductor's lock
    try:
        return create_async_engine(
            url.set(drivername="postgresql+asyncpg"),
            hide_parameters=True,
            isolation_level="READ COMMITTED",  # the ledger's row locks are designed for this level
            pool_pre_ping=True,  # after a database restart, the next call only has to reconnect
            pool_size=_CONNECTIONS + 1,  # one connection holds the claim
            max_overflow=0,
            connect_args={"timeout": _CONNECT_SECONDS, "command_timeout": 60, "server_settings": _SETTINGS | name},
        )
    except ModuleNotFoundError:
        raise LedgerSettingError("PostgreSQL needs a driver: pip install 'secemb[postgres]'") from None


def _check_durable(tx: Connection) -> None:
    for setting in ("fsync", "synchronous_commit"):
        if tx.exec_driver_sql(f"SHOW {setting}").scalar_one() == "off":
            raise LedgerSettingError(f"PostgreSQL could lose acknowledged writes; set {setting} = on for this database")
