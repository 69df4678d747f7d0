"""What each server has seen of a run, from what it holds itself."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secemb_sdk.receipts import Receipt
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.messages.spec import TRAIN
from secemb_tools.local import Pair, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One server's side of the run."""

    role: int
    sessions: int
    keys_bytes: int  # of one session; the same for all
    update_bytes: int
    lengths: (
        int  # how many different totals devices have sent it in a training round: one, unless a request was repeated
    )
    share_ones: float | None  # the fraction of ones among the bits of its last share
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of a device in a training round, both servers together, and what moving the whole table would take."""

    sent: int
    received: int
    full_sent: int
    full_received: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


def view_of(server: Service, pair: Pair, receipts: list[Receipt], sessions: int) -> ServerView:
    """Return what a server has seen."""
    sizes, role = Sizes.of(pair.task), server.role
    return ServerView(
        role=role,
        sessions=sessions,
        keys_bytes=sizes.keys,
        update_bytes=sizes.update[role],
        lengths=len({one.sent[role] for one in receipts if one.kind == TRAIN}),
        share_ones=_ones(_last_share(server.folder, pair.task)),
        cpu_seconds=server.usage().cpu_seconds,
    )


def sum_zeros(pair: Pair) -> float | None:
    """Return the fraction of zeros among the numbers of the last sum, which takes both shares to see."""
    shares = [_last_share(server.folder, pair.task) for server in pair.servers]
    if shares[0] is None or shares[1] is None:
        return None
    return float(np.mean((shares[0] + shares[1]) == 0))


def traffic_of(task: TaskSpec, receipts: list[Receipt]) -> Traffic:
    """Return what a device has moved, on average, against a whole table: shared up, plain down."""
    trained = [one for one in receipts if one.kind == TRAIN] or receipts
    whole = 4 * (task.items * task.row_width + task.dense_size)
    count = max(len(trained), 1)
    return Traffic(
        sent=sum(sum(one.sent) for one in trained) // count,
        received=sum(sum(one.received) for one in trained) // count,
        full_sent=2 * whole,
        full_received=whole,
    )


def _last_share(folder: Path, task: TaskSpec) -> np.ndarray[Any, np.dtype[np.uint32]] | None:
    """Return the newest share of a training round; those of evaluations are a few numbers long."""
    size = task.items * task.row_width * task.ring.element_bytes
    files = [path for path in (folder / "data" / "shares").glob("*.share") if path.stat().st_size >= size]
    if not files:
        return None
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    return np.frombuffer(newest.read_bytes()[:size], dtype="<u4")


def _ones(share: np.ndarray[Any, np.dtype[np.uint32]] | None) -> float | None:
    return None if share is None else float(np.unpackbits(share.view(np.uint8)).mean())
