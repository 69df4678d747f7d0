"""The ledger itself: all calls in one place, each built from a function that runs inside a transaction."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, text

from secemb_party.errors import LedgerFullError, LedgerSettingError, LedgerTakenError, LedgerUnavailableError
from secemb_party.evaluation import SessionBodies
from secemb_party.ledger import (
    archive,
    devices,
    events,
    instructions,
    lifecycle,
    rounds,
    schema,
    sessions,
    suspects,
    tasks,
    tokens,
)
from secemb_party.ledger.bodies import DatabaseBodies
from secemb_party.ledger.database import Database, Measure, MeasuredDatabase, parse
from secemb_party.ledger.epoch import check_epoch, raise_epoch
from secemb_party.ledger.records import Stored, Upload
from secemb_party.ledger.sqlite import open_sqlite
from secemb_party.logs import Outage
from secemb_party.storage.interfaces import KEYS, UPDATE, BodyStore

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[Concatenate[Connection, P], T]
Method = Callable[Concatenate["Ledger", P], Coroutine[Any, Any, T]]
_CONDUCTS_IN: ContextVar[int | None] = ContextVar("epoch", default=None)  # set while a step is carried out


def _reads(function: Call[P, T]) -> Method[P, T]:
    """Turn a function that runs one statement and changes nothing into a method."""

    @wraps(function)
    async def method(self: "Ledger", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._watched(writes=False):
            return await self._database.read(lambda tx: function(tx, *args, **kwargs))

    return method


def _writes(function: Call[P, T]) -> Method[P, T]:
    """Turn a function that changes something into a method that runs it as one transaction."""

    @wraps(function)
    async def method(self: "Ledger", /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._taken:
            raise LedgerUnavailableError("another server process has taken over this ledger")
        epoch = _CONDUCTS_IN.get()

        def work(tx: Connection) -> T:
            if epoch is not None:
                check_epoch(tx, epoch)
            return function(tx, *args, **kwargs)

        with self._watched(writes=True):
            return await self._database.write(work)

    return method


class Ledger:
    """The durable records of one server; see the functions named here for what each call does."""

    def __init__(self, database: Database, bodies: BodyStore | None = None, *, shared: bool = False) -> None:
        self._database, self.shared = database, shared  # whether other processes of this server use it too
        self._epoch: int | None = None  # of this process as the conductor
        self._taken = False
        self._outage = Outage("the ledger is failing", "the ledger has recovered")
        self.full = False  # a write failed because the database's disk is full, and none has succeeded since
        self.writable = True  # no write has failed since the last one that succeeded
        self.bodies: BodyStore = bodies or DatabaseBodies(database)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        migrate: bool,
        bodies: BodyStore | None = None,
        measure: Measure | None = None,
        patience: float | None = None,
        shared: bool = False,
    ) -> Self:
        """Open the ledger at sqlite:////path or postgresql://…; tables are created or upgraded only with `migrate`.

        Bodies of sessions are kept in the same database, or in `bodies`. Each call is measured with `measure`. With
        `patience`, the ledger is claimed first, as servers do: this waits that many seconds for another server that is
        ending. Commands do not claim it. A `shared` claim tolerates others that are shared: replicas of one server.
        """
        database = await _open_database(url, create=migrate)
        try:
            if patience is not None:
                await database.claim(patience=patience, shared=shared)
            await database.write(schema.upgrade if migrate else schema.check)
        except BaseException:
            await database.close()
            raise
        return cls(MeasuredDatabase(database, measure) if measure is not None else database, bodies, shared=shared)

    @contextmanager
    def _watched(self, *, writes: bool) -> Iterator[None]:
        """Log once that the database is failing, and once that it has recovered, separately for reads and writes."""
        try:
            yield
        except LedgerUnavailableError as error:
            self.full = self.full or isinstance(error, LedgerFullError)
            self.writable = self.writable and not writes
            self._outage.failed(str(error))
            raise
        if writes:
            self.full, self.writable = False, True
        if self.writable:
            self._outage.worked()

    async def close(self) -> None:
        """Wait for running calls, then close the database."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def claim(self) -> None:
        """Raise LedgerTakenError if another server has claimed the ledger; after that, nothing is written here."""
        try:
            with self._watched(writes=False):
                await self._database.claim(shared=self.shared)
        except LedgerTakenError:
            self._taken = True
            raise
        self._taken = False

    async def conduct(self) -> bool:
        """Return whether this process conducts the rounds; it begins to if no other process of this server does."""
        with self._watched(writes=False):
            holds = await self._database.conduct()
        if not holds:
            self._epoch = None
        elif self.shared and self._epoch is None:
            self._epoch = await self._raise_epoch()
        return holds

    @property
    def conducts(self) -> bool:
        """Return whether this process conducts, as far as it knows; one without other processes always does."""
        return not self.shared or self._epoch is not None

    @contextmanager
    def conducting(self) -> Iterator[None]:
        """Let every write inside be refused once another process has become the conductor."""
        token = _CONDUCTS_IN.set(self._epoch)
        try:
            yield
        except LedgerTakenError:
            self._epoch = None
            raise
        finally:
            _CONDUCTS_IN.reset(token)

    async def ping(self) -> None:
        """Raise LedgerUnavailableError unless the database responds."""
        await self._database.read(lambda tx: tx.execute(text("SELECT 1")).scalar_one())

    # In a class body, a plural hides the module of the same name, so it is last in its group.

    _raise_epoch = _writes(raise_epoch)

    add_task = _writes(tasks.add_task)
    start_task = _writes(lifecycle.start_task)
    stop_task = _writes(lifecycle.stop_task)
    archive_task = _writes(lifecycle.archive_task)
    task = _reads(tasks.task)

    record_version = _writes(tasks.record_version)
    publish_version = _writes(tasks.publish_version)
    published_version = _reads(tasks.published_version)
    versions = _reads(tasks.versions)

    request_rollback = _writes(tasks.request_rollback)
    finish_rollback = _writes(tasks.finish_rollback)
    give_up_rollback = _writes(tasks.give_up_rollback)
    open_rollback = _reads(tasks.open_rollback)
    rollbacks = _reads(tasks.rollbacks)
    tasks = _reads(tasks.tasks)

    create_round = _writes(rounds.create_round)
    postpone = _writes(rounds.postpone)
    advance = _writes(rounds.advance)
    round = _reads(rounds.find_round)
    current_round = _reads(rounds.current_round)
    last_round = _reads(rounds.last_round)
    shares_by_kind = _reads(rounds.shares_by_kind)
    discarded_by_kind = _reads(rounds.discarded_by_kind)
    _long_ended = _reads(rounds.long_ended)
    rounds = _reads(rounds.rounds)

    admit = _writes(sessions.admit)
    turn_away = _writes(sessions.turn_away)
    knows_session = _reads(sessions.knows_session)
    has_update = _reads(sessions.has_update)
    session_summaries = _reads(sessions.session_summaries)
    counts = _reads(sessions.counts)
    seats = _reads(sessions.seats)
    finished = _reads(sessions.finished)
    forget_sessions = _writes(sessions.forget_sessions)
    keys_digest = _reads(sessions.keys_digest)
    _body_names = _reads(sessions.body_names)
    _put_keys = _writes(sessions.put_keys)
    _put_update = _writes(sessions.put_update)

    suspects = _reads(suspects.suspects)

    add_tokens = _writes(tokens.add_tokens)
    replace_token = _writes(tokens.replace_token)
    revoke_tokens = _writes(tokens.revoke_tokens)
    find_device = _writes(tokens.find_device)
    token = _reads(tokens.token)
    tokens_of = _reads(tokens.tokens_of)
    tokens = _reads(tokens.tokens)

    note_refusal = _writes(devices.note_refusal)
    note_rejections = _writes(devices.note_rejections)
    suspend_devices = _writes(devices.suspend_devices)
    resume_devices = _writes(devices.resume_devices)
    notable_devices = _reads(devices.notable_devices)

    remember = _writes(events.remember)
    recall = _reads(events.recall)

    record_action = _writes(events.record_action)
    actions = _reads(events.actions)

    instruct = _writes(instructions.instruct)
    lift = _writes(instructions.lift)
    instructions = _reads(instructions.instructions)

    append_event = _writes(events.append_event)
    probe = _writes(events.probe)
    recent_events = _reads(events.recent_events)
    events = _reads(events.events)

    write_archive = _reads(archive.write_archive)
    read_archive = _writes(archive.read_archive)
    restore_archive = _writes(archive.restore_archive)

    async def put_keys(self, upload: Upload, now: float, *, require_admission: bool, limit: int) -> Stored:
        """Record a session's keys and store their body; see `sessions.put_keys`."""
        store = await self.bodies.stage(upload.round_id, upload.session_id, KEYS, upload.body_digest, upload.body)
        return await self._put_keys(upload, store, now, require_admission=require_admission, limit=limit)

    async def put_update(self, upload: Upload, now: float, *, limit: int | None = None) -> Stored:
        """Record a session's update and store its body; see `sessions.put_update`."""
        store = await self.bodies.stage(upload.round_id, upload.session_id, UPDATE, upload.body_digest, upload.body)
        return await self._put_update(upload, store, now, limit=limit)

    async def read_bodies(
        self, round_id: bytes, session_ids: Sequence[bytes], *, batch: int
    ) -> AsyncIterator[list[SessionBodies]]:
        """Yield the bodies of complete sessions in this order, `batch` at a time, so a round need not fit in memory."""
        for first in range(0, len(session_ids), batch):
            names = await self._body_names(round_id, session_ids[first : first + batch])
            yield await self.bodies.read(round_id, names)

    async def forget_bodies(self, *, ended_before: float | None = None, keep_last_rounds: int = 0) -> int:
        """Remove the bodies of ended rounds, except the last few of each task; return how many were removed.

        Digests are kept. This takes many small transactions; if it is interrupted, the next call removes the rest.
        """
        held = await self.bodies.rounds()
        ended = await self._long_ended(held, ended_before=ended_before, keep_last_rounds=keep_last_rounds)
        return sum([await self.bodies.drop(one) for one in ended])


async def _open_database(url: str, *, create: bool) -> Database:
    parsed = parse(url)
    match parsed.get_backend_name():
        case "sqlite":
            return await open_sqlite(parsed, create=create)
        case "postgresql":
            from secemb_party.ledger.postgres import open_postgres  # and SQLAlchemy's ORM

            return await open_postgres(parsed)
    raise LedgerSettingError(
        "the ledger must be in SQLite (sqlite:////path/to/ledger.db) or PostgreSQL (postgresql://…)"
    )
