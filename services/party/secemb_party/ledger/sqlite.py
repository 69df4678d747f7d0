"""The ledger in SQLite with a write-ahead log; one thread writes, and commits waiting calls together."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor

from secemb_party.errors import LedgerSettingError, LedgerUnavailableError, SchemaMissingError
from secemb_party.ledger.database import Work, taken, translated
from secemb_party.storage.files import lock_file, sync_folder

T = TypeVar("T")

Outcome = Callable[[], None]  # delivers the result of a call, on the event loop

_MOST = 32  # calls that share a transaction: at 250 kB each, they fit in the page cache of a small machine
_GATHER_SECONDS = 0.01  # if several calls arrived together last time, more are probably on the way: wait for them
_READERS = 2
_BUSY_SECONDS = 20  # how long to wait for another process, such as the `secemb` command
_ASK_AGAIN_SECONDS = 0.01
_LARGEST_LOG = 64 << 20  # size of the log on disk after it has been written back, in bytes
_CACHE_KIB = 16_384  # holds what is committed together, so that nothing is written twice
_PAGE = 16_384  # bytes: a body of 100,000 bytes is a chain of only a few pages


class HeldConnection:
    """A thread's own connection, kept between transactions; after a failure it is returned to the pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run one transaction."""
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with self._connection.begin():
                yield self._connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Return the connection to the pool."""
        held, self._connection = self._connection, None
        if held is not None:
            held.close()


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    work: Work[T]
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Writer:
    """Runs functions one after the other and delivers each result when its transaction is on disk."""

    def __init__(self, engine: Engine) -> None:
        self._held = HeldConnection(engine)
        self._line: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T]) -> T:
        """Queue a call and wait for its result."""
        if self._closed:
            raise LedgerUnavailableError("the ledger is closed")
        call = _Call(work)
        self._line.put(call)
        return await call.answer

    def close(self) -> None:
        """Run the calls in the queue until it is closed."""
        self._closed = True
        self._line.put(None)
        self._thread.join()

    def _serve(self) -> None:
        crowded = False
        while (first := self._line.get()) is not None:
            if crowded:
                time.sleep(_GATHER_SECONDS)
            calls, last = self._next_with(first)
            crowded = len(calls) > 1
            outcomes = self._commit_together(calls) if len(calls) > 1 else None
            if outcomes is None:
                outcomes = [self._commit_alone(call) for call in calls]
            _deliver(calls[0].answer.get_loop(), outcomes)
            if last:
                break
        self._held.close()

    def _next_with(self, first: _Call[Any]) -> tuple[list[_Call[Any]], bool]:
        """Return the waiting calls, and whether the queue is closed after them."""
        calls = [first]
        while len(calls) < _MOST:
            try:
                call = self._line.get_nowait()
            except Empty:
                break
            if call is None:
                return calls, True
            calls.append(call)
        return calls, False

    def _commit_together(self, calls: list[_Call[Any]]) -> list[Outcome] | None:
        """Return the outcome of each call, or None if one failed and the transaction was rolled back."""
        try:
            with translated(), self._held.begin() as tx:
                results = [call.work(tx) for call in calls]
        except LedgerUnavailableError as error:
            # No single call is the cause, and none would succeed alone: each would wait for the locked file in turn.
            return [_failure(call, LedgerUnavailableError(str(error))) for call in calls]
        except Exception:
            return None
        return [_success(call, result) for call, result in zip(calls, results, strict=True)]

    def _commit_alone(self, call: _Call[Any]) -> Outcome:
        try:
            with translated(), self._held.begin() as tx:
                result = call.work(tx)
        except BaseException as error:
            return _failure(call, error)
        return _success(call, result)


def _success(call: _Call[T], result: T) -> Outcome:
    # A cancelled caller is no longer waiting.
    return lambda: None if call.answer.done() else call.answer.set_result(result)


def _failure(call: _Call[Any], error: BaseException) -> Outcome:
    return lambda: None if call.answer.done() else call.answer.set_exception(error)


def _deliver(loop: asyncio.AbstractEventLoop, outcomes: list[Outcome]) -> None:
    """Wake the event loop only once for all of them, because this costs more than a statement."""

    def answer() -> None:
        for outcome in outcomes:
            outcome()

    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)


class SqliteDatabase:
    """A ledger in one file."""

    def __init__(self, url: URL) -> None:
        self._to_read, self._to_write = _engine(url, _READERS), _engine(url, 1)
        # A writer takes the lock at once: reading first and writing later fails if another process writes in between. A
        # reader runs a single statement, which needs no explicit transaction.
        event.listen(self._to_write, "begin", lambda tx: tx.exec_driver_sql("BEGIN IMMEDIATE"))
        self._writer = Writer(self._to_write)
        self._readers = ThreadPoolExecutor(_READERS, "ledger-reader")
        self._held: dict[int, HeldConnection] = {}  # by reader
        self._lock_file = Path(f"{url.database}.lock")
        self._claim: int | None = None  # the open lock file

    async def read(self, work: Work[T]) -> T:
        """Run one statement that changes nothing."""
        try:
            answer = self._readers.submit(self._read, work)
        except RuntimeError:  # shut down
            raise LedgerUnavailableError("the ledger is closed") from None
        return await asyncio.wrap_future(answer)

    def _read(self, work: Work[T]) -> T:
        reader = threading.get_ident()
        if reader not in self._held:
            self._held[reader] = HeldConnection(self._to_read)
        with translated(), self._held[reader].begin() as tx:
            return work(tx)

    async def write(self, work: Work[T]) -> T:
        """Run a function as one transaction. A cancelled caller stops waiting; the transaction still completes."""
        return await self._writer.submit(work)

    async def claim(self, *, patience: float = 0.0, shared: bool = False) -> None:
        """Make sure that no other process has claimed this file. The system releases a claim when its process ends."""
        if shared:
            raise LedgerSettingError(
                "replicas need PostgreSQL, because an SQLite file is for one process; set [ledger] url"
            )
        if self._claim is not None:
            return
        try:
            self._claim = await asyncio.to_thread(lock_file, self._lock_file, patience=patience)
        except BlockingIOError:
            raise taken() from None
        except OSError as error:
            raise LedgerSettingError(f"cannot open the lock file {self._lock_file}: {error.strerror}") from None

    async def conduct(self) -> bool:
        """Return whether the file is claimed: its only process conducts."""
        return self._claim is not None

    async def close(self) -> None:
        """Wait for running calls, then close the file."""
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._writer.close()
        self._readers.shutdown()
        for held in self._held.values():
            held.close()
        self._to_read.dispose()
        self._to_write.dispose()
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


async def open_sqlite(url: URL, *, create: bool) -> SqliteDatabase:
    """Open the file named by a URL, or create it with access for its owner only."""
    path = _path(url)
    await asyncio.to_thread(_make_file, path, create)
    database = SqliteDatabase(url)
    try:
        await database.read(_check_durable)
    except BaseException:
        await database.close()
        raise
    return database


def _engine(url: URL, connections: int) -> Engine:
    engine = create_engine(
        url.set(drivername="sqlite"),
        hide_parameters=True,
        connect_args={"timeout": _BUSY_SECONDS},
        pool_size=connections,
        max_overflow=0,
    )
    event.listen(engine, "connect", _configure)
    return engine


def _path(url: URL) -> Path:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:") or url.query:
        raise LedgerSettingError(
            "an in-memory ledger is not supported; name a file, as in sqlite:////path/to/ledger.db"
        )
    return Path(url.database)


def _make_file(path: Path, create: bool) -> None:
    if path.exists():
        return
    if not create:
        raise SchemaMissingError(
            f"there is no ledger at {path}; create it with `secemb serve --migrate` or `secemb ledger upgrade`"
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        sync_folder(path.parent)
    except OSError as error:
        raise LedgerSettingError(f"cannot create the ledger at {path}: {error.strerror}") from None


def _configure(connection: DBAPIConnection, _record: Any) -> None:
    # Without this, the driver begins transactions itself, and only before writes.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA page_size = {_PAGE}")  # for new files; an existing one keeps its page size
    _keep_log(cursor)
    cursor.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before it is acknowledged
    cursor.execute("PRAGMA foreign_keys = ON")
    # Some builds overwrite deleted data with zeros, which makes deleting a body cost half as much as storing it. Copies
    # in the log and on the disk would remain anyway, as docs/reference/data-model.md explains.
    cursor.execute("PRAGMA secure_delete = FAST")
    cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    cursor.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG}")
    cursor.close()


def _keep_log(cursor: DBAPICursor) -> None:
    # Two processes that switch the same new file would wait for each other, so SQLite fails at once instead.
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)
        else:
            return


def _check_durable(tx: Connection) -> None:
    if tx.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
        raise LedgerSettingError("SQLite cannot use a write-ahead log here; put the ledger on a local file system")
