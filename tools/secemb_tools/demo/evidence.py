"""The data of a run that each server has seen, measured in the files in its directory."""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from secemb_sdk.home.receipts import Receipt
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.spec import TRAIN

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
    """Return the messages that the server in this directory still stores."""
    with _ledger(folder) as ledger:
        return [Message(*row) for row in ledger.execute(_MESSAGES)]


def complete_sessions(folder: Path) -> int:
    """Return how many complete sessions the server has received, in all rounds."""
    with _ledger(folder) as ledger:
        return int(ledger.execute(_COMPLETE).fetchone()[0])


@contextmanager
def _ledger(folder: Path) -> Iterator[sqlite3.Connection]:
    place = (folder / "data" / "ledger.db").absolute().as_uri()
    with closing(sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=10)) as ledger:
        yield ledger


Numbers = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One server's side of the run, counted in its ledger and its files."""

    role: int
    sessions: int  # complete ones, in all rounds
    messages: int  # from the last rounds: a server deletes older ones
    keys_bytes: int  # in one session, the largest in a training round
    update_bytes: int
    lengths: int  # number of different lengths in training rounds
    repeated: int  # messages stored more than once
    compressed: float  # size of all messages after zlib, as a fraction
    share_ones: float | None  # the fraction of ones among the bits of its last share
    share_compressed: float | None  # size of that share after zlib, as a fraction
    cpu_seconds: float | None  # None where the system has no /proc

    @property
    def good(self) -> bool:
        """Tell whether all sessions have the same length and no message occurs twice."""
        return self.messages > 0 and self.lengths == 1 and self.repeated == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum of the last training round, which only both shares together reveal."""

    zeros: float  # the fraction of its numbers
    compressed: float  # its size after zlib, as a fraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Corner:
    """The same few rows of both servers' last shares, as they are on disk."""

    shares: tuple[Numbers, Numbers]  # (rows, width) each

    @property
    def total(self) -> Numbers:
        """Return the sum, which neither server has alone."""
        return self.shares[0] + self.shares[1]


def corner_of(folders: Iterable[Path], task: TaskSpec, *, rows: int = 40) -> Corner | None:
    """Return the first rows of both servers' last shares."""
    first, second = (_last_share(folder, task) for folder in folders)
    if first is None or second is None:
        return None
    shape = (task.items, task.row_width)
    return Corner(shares=(first.reshape(shape)[:rows], second.reshape(shape)[:rows]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of a device in a training round, for both servers together, and those of transferring the whole table."""

    sent: int
    received: int
    full_sent: int
    full_received: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


def view_of(folder: Path, task: TaskSpec, *, role: int, cpu_seconds: float | None) -> ServerView:
    """Return the view of the server in this directory."""
    messages = stored_messages(folder)
    trained = [one for one in messages if one.kind == TRAIN]
    share = _last_share(folder, task)
    return ServerView(
        role=role,
        sessions=complete_sessions(folder),
        messages=len(messages),
        keys_bytes=max((len(one.body) for one in trained if one.part == "keys"), default=0),
        update_bytes=max((len(one.body) for one in trained if one.part == "update"), default=0),
        lengths=_lengths(trained),
        repeated=len(messages) - len({one.body for one in messages}),
        compressed=_compressed(one.body for one in messages),
        share_ones=None if share is None else float(np.unpackbits(share.view(np.uint8)).mean()),
        share_compressed=None if share is None else _compressed([share.tobytes()]),
        cpu_seconds=cpu_seconds,
    )


def total_of(folders: Iterable[Path], task: TaskSpec) -> Total | None:
    """Return the sum of both servers' shares."""
    first, second = (_last_share(folder, task) for folder in folders)
    if first is None or second is None:
        return None
    total = first + second
    return Total(zeros=float(np.mean(total == 0)), compressed=_compressed([total.tobytes()]))


def traffic_of(task: TaskSpec, receipts: list[Receipt]) -> Traffic:
    """Return a device's average traffic, and that of a whole table: secret-shared up, plain down."""
    trained = [one for one in receipts if one.kind == TRAIN] or receipts
    whole = 4 * (task.items * task.row_width + task.dense_size)
    count = max(len(trained), 1)
    return Traffic(
        sent=sum(sum(one.sent) for one in trained) // count,
        received=sum(sum(one.received) for one in trained) // count,
        full_sent=2 * whole,
        full_received=whole,
    )


def _last_share(folder: Path, task: TaskSpec) -> Numbers | None:
    """Return the newest share of a training round; those of evaluations are a few numbers long."""
    size = task.items * task.row_width * task.ring.element_bytes
    files = [path for path in (folder / "data" / "shares").glob("*.share") if path.stat().st_size >= size]
    if not files:
        return None
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    return np.frombuffer(newest.read_bytes()[:size], dtype="<u4")


def _lengths(messages: list[Message]) -> int:
    """Return the number of different lengths of keys or of updates, whichever is larger."""
    lengths = {part: {len(one.body) for one in messages if one.part == part} for part in ("keys", "update")}
    return max(map(len, lengths.values()))


def _compressed(parts: Iterable[bytes]) -> float:
    """Return the size after zlib as a fraction; slightly above one if nothing can be compressed."""
    packer, before, after = zlib.compressobj(), 0, 0
    for part in parts:
        before += len(part)
        after += len(packer.compress(part))
    return (after + len(packer.flush())) / max(before, 1)
