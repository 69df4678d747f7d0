"""What devices have sent to a server, read from its ledger without its help; docs/data-model.md has the tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_MESSAGES = """
SELECT rounds.kind, bodies.part, bodies.body
FROM bodies JOIN sessions USING (session_id) JOIN rounds USING (round_id)
"""
_COMPLETE = "SELECT COUNT(*) FROM sessions WHERE update_digest IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a device."""

    kind: str  # of its round: train, survey or evaluate
    part: str  # keys or update
    body: bytes = field(repr=False)


def stored_messages(folder: Path) -> list[Message]:
    """Return the messages that the server in this directory still holds."""
    with _ledger(folder) as ledger:
        return [Message(*row) for row in ledger.execute(_MESSAGES)]


def complete_sessions(folder: Path) -> int:
    """Return how many sessions the server has taken in completely, in all rounds."""
    with _ledger(folder) as ledger:
        return int(ledger.execute(_COMPLETE).fetchone()[0])


@contextmanager
def _ledger(folder: Path) -> Iterator[sqlite3.Connection]:
    place = (folder / "data" / "ledger.db").absolute().as_uri()
    with closing(sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=10)) as ledger:
        yield ledger
