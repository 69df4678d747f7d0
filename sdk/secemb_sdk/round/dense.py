"""The dense part of a version: read from server 0, confirmed by server 1, kept in the home."""

import hashlib

import numpy as np

from secemb_sdk.errors import GoneError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Floats
from secemb_sdk.round.route import Confirm
from secemb_sdk.steps import Request, Steps, work
from secemb_shared.messages import TaskSpec

# Names in the home: for rounds, and for copies of the table, of which there are two during a download.
ROUNDS, TABLES = "dense", ("table-dense", "table-dense-2")

_SAME = 304
_NUMBER_BYTES = 4
_SHORT_ANSWER = 1 << 16  # bytes of an answer that is not a dense part
_SECONDS = 300.0


def read_dense(
    exchange: Exchange, task: TaskSpec, version: int, *, confirm: Confirm, keep: str = ROUNDS
) -> Steps[Floats | None]:
    """Return the dense part of a version, or None if it is gone or the servers publish different ones."""
    if task.dense_size == 0:
        return np.zeros(0, dtype=np.float32)
    vault = exchange.context.vault
    kept = yield from work(lambda: vault.dense(keep, version))
    if kept is None:
        try:
            kept = yield from _download(exchange, task, version, confirm)
        except (GoneError, RefusedError):
            return None
        if kept is None:
            return None
        body = kept
        yield from work(lambda: vault.keep_dense(keep, version, body))
    return np.frombuffer(kept, "<f4").astype(np.float32)


def ask_server1(exchange: Exchange, task: TaskSpec, version: int, body: bytes) -> Steps[bool]:
    """Ask server 1 whether it publishes this dense part."""
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    (answer,) = yield from exchange.ask(_ask(task, version, 1, tag))
    return answer.status == _SAME or answer.body == body


def _download(exchange: Exchange, task: TaskSpec, version: int, confirm: Confirm) -> Steps[bytes | None]:
    (answer,) = yield from exchange.ask(_ask(task, version, 0))
    same = yield from confirm(answer.body)
    if same and len(answer.body) == _NUMBER_BYTES * task.dense_size:
        return answer.body
    yield from exchange.note(Misconduct.DENSE)
    return None


def _ask(task: TaskSpec, version: int, server: int, tag: str | None = None) -> Request:
    return Request(
        server=server,
        method="GET",
        path=f"/v1/tasks/{task.task_id.hex()}/dense/{version}",
        headers={} if tag is None else {"if-none-match": tag},
        most=max(_NUMBER_BYTES * task.dense_size, _SHORT_ANSWER),
        seconds=_SECONDS,
    )
