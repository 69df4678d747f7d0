"""The ledger itself: every call in one place, each made of a function that runs inside a transaction."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, text

from secemb_party.errors import LedgerSettingError
from secemb_party.evaluation import SessionBodies
from secemb_party.ledger import events, rounds, schema, sessions, tasks, tokens
from secemb_party.ledger.database import Database, parse
from secemb_party.ledger.postgres import open_postgres
from secemb_party.ledger.sessions import FORGET_AT_ONCE
from secemb_party.ledger.sqlite import open_sqlite

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[Concatenate[Connection, P], T]
Method = Callable[Concatenate["Ledger", P], Coroutine[Any, Any, T]]


def _reads(function: Call[P, T]) -> Method[P, T]:
    """Make a method of a function that runs one statement and changes nothing."""

    @wraps(function)
    async def method(self: "Ledger", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda tx: function(tx, *args, **kwargs))

    return method


def _writes(function: Call[P, T]) -> Method[P, T]:
    """Make a method of a function that changes something: one transaction."""

    @wraps(function)
    async def method(self: "Ledger", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda tx: function(tx, *args, **kwargs))

    return method


class Ledger:
    """The durable memory of one server; see the functions named here for what each call does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, url: str, *, migrate: bool) -> Self:
        """Open the ledger at sqlite:////path or postgresql://…; only with `migrate` are tables made or upgraded."""
        database = await _open_database(url, create=migrate)
        try:
            await database.write(schema.upgrade if migrate else schema.check)
        except BaseException:
            await database.close()
            raise
        return cls(database)

    async def close(self) -> None:
        """Let what is running end, then close the database."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ping(self) -> None:
        """Raise LedgerUnavailableError unless the database answers."""
        await self._database.read(lambda tx: tx.execute(text("SELECT 1")).scalar_one())

    # In the body of a class a plural hides the module of its name: it stands last in its group.

    add_task = _writes(tasks.add_task)
    task = _reads(tasks.task)

    record_version = _writes(tasks.record_version)
    publish_version = _writes(tasks.publish_version)
    published_version = _reads(tasks.published_version)
    versions = _reads(tasks.versions)

    wish_rollback = _writes(tasks.wish_rollback)
    finish_rollback = _writes(tasks.finish_rollback)
    give_up_rollback = _writes(tasks.give_up_rollback)
    open_rollback = _reads(tasks.open_rollback)
    rollbacks = _reads(tasks.rollbacks)
    tasks = _reads(tasks.tasks)

    create_round = _writes(rounds.create_round)
    advance = _writes(rounds.advance)
    round = _reads(rounds.find_round)
    current_round = _reads(rounds.current_round)
    last_round = _reads(rounds.last_round)
    shares_by_kind = _reads(rounds.shares_by_kind)
    rounds = _reads(rounds.rounds)

    admit = _writes(sessions.admit)
    put_keys = _writes(sessions.put_keys)
    put_update = _writes(sessions.put_update)
    knows_session = _reads(sessions.knows_session)
    has_update = _reads(sessions.has_update)
    session_summaries = _reads(sessions.session_summaries)
    counts = _reads(sessions.counts)
    keys_digest = _reads(sessions.keys_digest)
    keys_body = _reads(sessions.keys_body)
    _read_bodies = _reads(sessions.read_bodies)
    _forget_some = _writes(sessions.forget_some)

    add_token = _writes(tokens.add_token)
    add_tokens = _writes(tokens.add_tokens)
    revoke_token = _writes(tokens.revoke_token)
    token = _reads(tokens.token)
    tokens = _reads(tokens.tokens)

    remember = _writes(events.remember)
    recall = _reads(events.recall)

    append_event = _writes(events.append_event)
    recent_events = _reads(events.recent_events)
    events = _reads(events.events)

    async def bodies(
        self, round_id: bytes, session_ids: Sequence[bytes], *, batch: int = 32
    ) -> AsyncIterator[list[SessionBodies]]:
        """Yield keys and update of these sessions in their order, so many at a time: a round need not fit in memory."""
        for first in range(0, len(session_ids), batch):
            yield await self._read_bodies(round_id, session_ids[first : first + batch])

    async def forget_bodies(self, *, ended_before: float | None = None, keep_last_rounds: int = 0) -> int:
        """Remove the bodies of rounds that are over, digests stay; return how many were removed.

        Each task keeps those of its last so many ended rounds. This is many small transactions: one that
        is cut short leaves the rest to the next call.
        """
        removed, some = 0, FORGET_AT_ONCE
        while some >= FORGET_AT_ONCE:  # a session has one body or two: with fewer than so many it was not a whole batch
            some = await self._forget_some(ended_before=ended_before, keep_last_rounds=keep_last_rounds)
            removed += some
        return removed


async def _open_database(url: str, *, create: bool) -> Database:
    parsed = parse(url)
    match parsed.get_backend_name():
        case "sqlite":
            return await open_sqlite(parsed, create=create)
        case "postgresql":
            return await open_postgres(parsed)
    raise LedgerSettingError("a ledger is kept in SQLite (sqlite:////path/to/ledger.db) or PostgreSQL (postgresql://…)")
