"""Private reads: rows of some items from both servers, neither of which learns which.

    ask server 0 for a ticket    →  a round, and leave to read in it
    KEYS to both                 →  an ANSWER from each, which together are the rows

Nothing is written and nothing kept. Each read has a session of its own, with its own id and seeds. What a server sees
is that a device reads, and how many times.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from secemb_sdk.errors import RefusedError, UnavailableError
from secemb_sdk.exchange import error_for, retry_after
from secemb_sdk.models.interface import Floats
from secemb_sdk.round.join import read_ticket
from secemb_sdk.round.session import SESSION_SEED_BYTES, DeviceSession, Messages, SeededBytes, session_id_of
from secemb_sdk.steps import Ask, Request, Steps, work
from secemb_shared.errors import MessageError, RowTagError, SpecError
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

Found = tuple[Indices, Floats]  # items and their rows
# Called when a ticket has come; its steps let the rest of a fixed time pass, so that the time until keys are sent says
# nothing about how many items were to be placed.
WaitSince = Callable[[], Steps[None]]

_ATTEMPTS = 3  # to read everything from one version


@dataclass(frozen=True, slots=True, eq=False)
class RowsRead:
    """Rows of one version of the model."""

    round: RoundSpec | None  # None: nothing was read
    items: Indices = field(repr=False)
    rows: Floats = field(repr=False)  # (n, width)
    wrong: bool = field(default=False, repr=False)  # some answer did not check out

    def joined(self, round_: RoundSpec, found: Found | None) -> "RowsRead":
        """Return these rows and those of one more read, which failed if there is nothing."""
        if found is None:
            return RowsRead(round_, self.items, self.rows, wrong=True)
        items, rows = np.concatenate([self.items, found[0]]), np.concatenate([self.rows, found[1]])
        return RowsRead(round_, items, rows, self.wrong)

    def check(self) -> None:
        """Raise `RowTagError` if an answer was wrong; to be called once everything that would be sent is sent."""
        if self.wrong:
            raise RowTagError("a server answered wrongly; nothing of it is used. Try again, and tell the operators")


def at_once() -> Steps[None]:
    """Wait for nothing."""
    yield from ()


class ReadSession:
    """A session that reads and cannot write: it has no way to make an update."""

    def __init__(self, round_: RoundSpec, items: Indices, seed: bytes) -> None:
        self._session = DeviceSession(round_, items, random_bytes=SeededBytes(seed))

    @property
    def keys(self) -> Messages:
        """Return the messages to both servers."""
        return self._session.keys

    @property
    def truncated(self) -> int:
        """Return how many items found no place."""
        return self._session.truncated

    def read(self, answers: Messages) -> tuple[Indices, Floats]:
        """Return the items that found a place and their rows."""
        return self._session.read(answers)


@dataclass(frozen=True, slots=True)
class _Leave:
    """Server 0's leave to read."""

    seed: bytes = field(repr=False)  # of the session that it is for
    round: RoundSpec
    ticket: str = field(repr=False)


def read_steps(
    task: TaskSpec,
    items: Indices,
    *,
    token: str | None,
    ask: Ask,
    wait_since: WaitSince = at_once,
    random_bytes: RandomBytes = secure_bytes,
) -> Steps[RowsRead]:
    """Return the rows of different items of the catalogue, all from one version of the model.

    A wrong answer changes nothing in what is sent: whatever was to be read is read, and the result says so. A device
    that stopped in the middle would tell a server whether it had guessed an item right. See `RowsRead.check`.
    """
    for _ in range(_ATTEMPTS):
        found = yield from _read_all_steps(task, items, token, ask, wait_since, random_bytes)
        if found is not None:
            return found
    raise UnavailableError("the model moved on while its rows were being read; try again")


def _read_all_steps(
    task: TaskSpec, items: Indices, token: str | None, ask: Ask, wait_since: WaitSince, random_bytes: RandomBytes
) -> Steps[RowsRead | None]:
    """Return all rows, or nothing if the version changed on the way."""
    read = _nothing(task)
    while items.size:
        chunk, rest = items[: task.capacity], items[task.capacity :]
        leave = yield from _leave_steps(task, token, ask, random_bytes)
        if read.round is not None and read.round.model_version != leave.round.model_version:
            return None
        rest_of_pace = wait_since()
        session = yield from work(partial(ReadSession, leave.round, chunk, leave.seed))
        yield from rest_of_pace
        answers = yield from _answer_steps(leave, session.keys, ask)
        found, missing = yield from work(partial(_understand, session, chunk, answers))
        read = read.joined(leave.round, found)
        items = np.concatenate([missing, rest])
    return read


def _understand(session: ReadSession, chunk: Indices, answers: Messages) -> tuple[Found | None, Indices]:
    """Return items and rows, or nothing if an answer is wrong; and the items that are still to be read."""
    try:
        items, rows = session.read(answers)
    except (RowTagError, MessageError):
        return None, chunk[: session.truncated]  # which these are no longer matters, only how many
    return (items, rows), chunk[~np.isin(chunk, items)]


def _nothing(task: TaskSpec) -> RowsRead:
    return RowsRead(None, np.empty(0, dtype=np.int64), np.empty((0, task.row_width), dtype=np.float32))


def _leave_steps(task: TaskSpec, token: str | None, ask: Ask, random_bytes: RandomBytes) -> Steps[_Leave]:
    """Return server 0's leave to read in a new session."""
    seed = random_bytes(SESSION_SEED_BYTES)
    headers = {"content-type": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    body = json.dumps({"session": session_id_of(seed).hex()}).encode()
    path = f"/v1/tasks/{task.task_id.hex()}/read"
    (answer,) = yield from ask(Request(server=0, method="POST", path=path, headers=headers, body=body))
    if answer.status == 202:
        raise UnavailableError("there was no round to read in yet; try again later", seconds=retry_after(answer))
    if answer.status != 200:
        raise error_for(0, answer)
    try:
        found = json.loads(answer.body)
        return _Leave(seed, RoundSpec.decode(found["round"].encode(), task), read_ticket(found["ticket"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SpecError, MessageError):
        raise RefusedError("server 0 gave no leave that can be read; update this app or the server") from None


def _answer_steps(leave: _Leave, keys: Messages, ask: Ask) -> Steps[Messages]:
    """Return both servers' answers."""
    path = f"/v1/rounds/{leave.round.digest.hex()}/sessions/{session_id_of(leave.seed).hex()}/rows"
    headers = {"content-type": "application/octet-stream", "secemb-ticket": leave.ticket}
    most = max(Sizes.of(leave.round.task).answer, 2**16)
    requests = [
        Request(server=server, method="POST", path=path, headers=headers, body=body, most=most)
        for server, body in enumerate(keys)
    ]
    answers = yield from ask(*requests)
    for server, answer in enumerate(answers):
        if answer.status != 200:
            raise error_for(server, answer)
    return answers[0].body, answers[1].body
