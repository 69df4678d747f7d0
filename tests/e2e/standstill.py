"""Servers that stand still where a test wants them to: between two steps of a round, or in the middle of a commit."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.e2e.servers import Server, Servers, wait_for

ORDER = ["open", "sealing", "sealed", "shared", "reconstructed", "published", "aborted"]
SLICE = 0.001
LOCKED_SECONDS = 0.5  # hardly any other write to the ledger takes so long

# In the database, so that the server knows nothing of it: what it writes when a round enters a state never ends.
PAUSE = """
CREATE VIEW endless AS WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers)
SELECT n FROM numbers;
CREATE TRIGGER pause BEFORE UPDATE OF state ON rounds WHEN NEW.number = {number} AND NEW.state = '{state}'
BEGIN SELECT count(*) FROM endless; END;
"""


async def step_until(servers: Servers, victim: Server, number: int, state: str) -> str:
    """Let the processes run in turns, a slice each, until the victim's ledger has the round in `state` or beyond.

    What needs the other server cannot happen in one slice, so that no state but two is passed over: server 0 goes from
    sealed to shared, and server 1 from reconstructed to published, alone. Return where the victim stands.
    """
    end = time.monotonic() + 30
    for server in servers.pair:
        server.send(signal.SIGSTOP)
    while True:
        for server in servers.pair:
            found = victim.state(number)
            if ORDER.index(found) >= ORDER.index(state):
                return found
            server.send(signal.SIGCONT)
            await asyncio.sleep(SLICE)
            server.send(signal.SIGSTOP)
        assert time.monotonic() < end, f"round {number} of server {victim.role} stays {found}"


@contextmanager
def caught_entering(victim: Server, number: int, state: str) -> Iterator[None]:
    """Let a server stand still in the middle of the commit by which a round enters `state`; kill it before the end."""
    with closing(_ledger(victim)) as ledger:
        ledger.executescript(PAUSE.format(number=number, state=state))
    yield
    assert victim.process is not None
    assert victim.process.poll() is not None, "a server that hangs must be killed before its ledger can be repaired"
    with closing(_ledger(victim)) as ledger:
        ledger.executescript("DROP TRIGGER pause; DROP VIEW endless;")


def await_caught(victim: Server, number: int, state: str) -> None:
    """Wait until it stands still in the commit that ends `state`; on a slow disk an earlier one may look like it."""
    wait_for(f"server {victim.role} stands still", lambda: victim.state(number) == state and _holds_ledger(victim))


def _holds_ledger(victim: Server) -> bool:
    with closing(_ledger(victim, seconds=LOCKED_SECONDS)) as ledger:
        try:
            ledger.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        ledger.execute("ROLLBACK")
        return False


def _ledger(server: Server, *, seconds: float = 20) -> sqlite3.Connection:
    return sqlite3.connect(server.folder / "data" / "ledger.db", timeout=seconds, isolation_level=None)
