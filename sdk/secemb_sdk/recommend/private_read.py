"""Private reads: rows of some items from both servers, neither of which learns which.

    ask server 0 for a place     →  a round, and a ticket to read in it
    KEYS to both                 →  an ANSWER from each, which together are the rows

Nothing is written or stored. Each read has its own session, with its own id and seeds. A server only sees
that a device reads, and how often.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from secemb_sdk.errors import UnavailableError
from secemb_sdk.exchange import Exchange
from secemb_sdk.models.interface import Floats
from secemb_sdk.round.join import ask_permission, decode_round
from secemb_sdk.round.route import Joined, carry
from secemb_sdk.round.session import SESSION_SEED_BYTES, DeviceSession, Messages, SeededBytes, session_id_of
from secemb_sdk.steps import Steps, work
from secemb_shared.errors import MessageError, RowTagError
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.randomness import Indices

Found = tuple[Indices, Floats]  # items and their rows

_ATTEMPTS = 3  # to read everything from one version


@dataclass(frozen=True, slots=True, eq=False)
class RowsRead:
    """Rows of one version of the model."""

    round: RoundSpec | None  # None: nothing was read
    items: Indices = field(repr=False)
    rows: Floats = field(repr=False)  # (n, width)
    wrong: bool = field(default=False, repr=False)  # an answer failed its check

    def joined(self, round_: RoundSpec, found: Found | None) -> "RowsRead":
        """Return these rows and those of another read; None counts as a failed read."""
        if found is None:
            return RowsRead(round_, self.items, self.rows, wrong=True)
        items, rows = np.concatenate([self.items, found[0]]), np.concatenate([self.rows, found[1]])
        return RowsRead(round_, items, rows, self.wrong)

    def check(self) -> None:
        """Raise `RowTagError` if an answer was wrong; call this only after everything has been sent."""
        if self.wrong:
            raise RowTagError("a server sent wrong rows, which were discarded; try again, and tell the operators")


class ReadSession:
    """A read-only session: it cannot make an update."""

    def __init__(self, round_: RoundSpec, items: Indices, seed: bytes) -> None:
        self._session = DeviceSession(round_, items, random_bytes=SeededBytes(seed))

    @property
    def keys(self) -> Messages:
        """Return the messages to both servers."""
        return self._session.keys

    @property
    def truncated(self) -> int:
        """Return how many items could not be placed."""
        return self._session.truncated

    def read(self, answers: Messages) -> tuple[Indices, Floats]:
        """Return the items that were placed, and their rows."""
        return self._session.read(answers)


def read_rows(exchange: Exchange, task: TaskSpec, items: Indices) -> Steps[RowsRead]:
    """Return the rows of different items of the catalogue, all from one version of the model.

    A wrong answer does not change what is sent: everything is read, and the result reports the failure. A device
    that stopped early would tell a server whether it had guessed an item right. See `RowsRead.check`.
    """
    for _ in range(_ATTEMPTS):
        found = yield from _read_all(exchange, task, items)
        if found is not None:
            return found
    raise UnavailableError("the model changed while its rows were being read; try again")


def _read_all(exchange: Exchange, task: TaskSpec, items: Indices) -> Steps[RowsRead | None]:
    """Return all rows, or None if the version changed in the meantime."""
    context, read = exchange.context, _nothing(task)
    while items.size:
        chunk, rest = items[: task.capacity], items[task.capacity :]
        seed = context.random_bytes(SESSION_SEED_BYTES)
        place = yield from ask_permission(exchange, session_id_of(seed), "read")
        joined = Joined(round=decode_round(place.round, task), ticket=place.ticket)
        if read.round is not None and read.round.model_version != joined.round.model_version:
            return None
        # The time until keys are sent must not reveal how many items were to be placed.
        keys_at = context.clock() + context.policy.keys_seconds
        session = yield from work(partial(ReadSession, joined.round, chunk, seed))
        yield from exchange.wait_until(keys_at)
        answers = yield from _send_keys(exchange, joined, session_id_of(seed), session.keys)
        found, missing = yield from work(partial(_understand, session, chunk, answers))
        read = read.joined(joined.round, found)
        items = np.concatenate([missing, rest])
    return read


def _send_keys(exchange: Exchange, joined: Joined, session_id: bytes, keys: Messages) -> Steps[Messages]:
    """Return both servers' answers."""
    round_, most = joined.round, Sizes.of(joined.round.task).answer
    first, second = yield from exchange.ask(
        *(
            carry(round_, session_id, joined.ticket, "rows", body, server=server, method="POST", most=most)
            for server, body in enumerate(keys)
        )
    )
    return first.body, second.body


def _understand(session: ReadSession, chunk: Indices, answers: Messages) -> tuple[Found | None, Indices]:
    """Return items and rows, or None if an answer is wrong; and the remaining items."""
    try:
        items, rows = session.read(answers)
    except (RowTagError, MessageError):
        return None, chunk[: session.truncated]  # only their number matters now, not which they are
    return (items, rows), chunk[~np.isin(chunk, items)]


def _nothing(task: TaskSpec) -> RowsRead:
    return RowsRead(None, np.empty(0, dtype=np.int64), np.empty((0, task.row_width), dtype=np.float32))
