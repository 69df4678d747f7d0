"""The dense part of a version: read from server 0, confirmed by server 1, kept in the home."""

import hashlib
from collections.abc import Callable

import numpy as np

from secemb_sdk.context import Context
from secemb_sdk.errors import GoneError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Floats
from secemb_sdk.steps import Request, Steps, work
from secemb_shared.messages import TaskSpec

# What it is kept for: the next rounds, or beside a copy of the table. Of these there are two, while a new copy comes.
ROUNDS, TABLES = "dense", ("table-dense", "table-dense-2")

Confirm = Callable[[bytes], bool]  # whether server 1 has the same; None: ask it

_SAME = 304
_NUMBER_BYTES = 4
_MOST_WORDS = 1 << 16  # bytes of an answer that is no dense part
_SECONDS = 300.0


def read_dense(
    context: Context,
    exchange: Exchange,
    task: TaskSpec,
    version: int,
    *,
    keep: str = ROUNDS,
    confirms: Confirm | None = None,
) -> Steps[Floats | None]:
    """Return the dense part of a version, or nothing if it is gone or the servers do not agree on it."""
    if task.dense_size == 0:
        return np.zeros(0, dtype=np.float32)
    kept = yield from work(lambda: context.vault.dense(keep, version))
    if kept is None:
        try:
            kept = yield from _download(exchange, task, version, confirms)
        except (GoneError, RefusedError):
            return None
        if kept is None:
            return None
        body = kept
        yield from work(lambda: context.vault.keep_dense(keep, version, body))
    return np.frombuffer(kept, "<f4").astype(np.float32)


def _download(exchange: Exchange, task: TaskSpec, version: int, confirms: Confirm | None) -> Steps[bytes | None]:
    (first,) = yield from exchange.ask(_ask(task, version, 0))
    if confirms is not None:
        same = confirms(first.body)
    else:
        same = yield from _ask_other(exchange, task, version, first.body)
    if same and len(first.body) == _NUMBER_BYTES * task.dense_size:
        return first.body
    yield from exchange.note(Misconduct.DENSE)
    return None


def _ask_other(exchange: Exchange, task: TaskSpec, version: int, body: bytes) -> Steps[bool]:
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    (second,) = yield from exchange.ask(_ask(task, version, 1, tag))
    return second.status == _SAME or second.body == body


def _ask(task: TaskSpec, version: int, server: int, tag: str | None = None) -> Request:
    return Request(
        server=server,
        method="GET",
        path=f"/v1/tasks/{task.task_id.hex()}/dense/{version}",
        headers={} if tag is None else {"if-none-match": tag},
        most=max(_NUMBER_BYTES * task.dense_size, _MOST_WORDS),
        seconds=_SECONDS,
    )
