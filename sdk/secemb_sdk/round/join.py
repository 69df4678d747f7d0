"""Before a session: the task and the round that both servers announce, and a place in the round."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from secemb_sdk.context import DIRECT, RELAYED, Context
from secemb_sdk.errors import EndedError, ExchangeError, PinError, RefusedError, UnavailableError
from secemb_sdk.exchange import ENDED, LONGEST_WAIT, Exchange, json_object, retry_after, server_time
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal, digest

BETWEEN_ROUNDS = 2.0  # seconds until there may be another round
_ONCE = 5.0  # seconds until a round that this device took part in may have ended
_GRANTED = 200
_LATEST = 1e12  # seconds since 1970, later than any deadline
_MOST = 1 << 16  # bytes of a task with its round, or of a ticket
_LONGEST_TICKET = 128
_DOMAIN = b"secemb/1 takes part"
_UNREADABLE = "this app cannot read a server's response; update the app"
_PAUSED = "the operators have paused the task"
_NO_ROUND = {"join": "no round is open to join", "read": "no round has opened yet, so nothing can be read"}

Purpose = Literal["join", "read"]


@dataclass(frozen=True, slots=True)
class Published:
    """The version of the model that both servers have announced, and its digest."""

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Server 0's permission to take part in a round or to read in it."""

    round: str  # canonical form, not yet decoded
    ticket: str = field(repr=False)
    relay: str | None = field(default=None, repr=False)  # the announcement of server 1's relay key


def find_task(exchange: Exchange) -> Steps[TaskSpec]:
    """Return the task: from the home, or the first time from both servers."""
    context = exchange.context
    known = yield from work(context.vault.task)
    if known is not None:
        return known
    # Its digest is the pinned id, so either server can send it. Both are asked if both are needed later.
    servers = (0, 1) if context.transport == DIRECT else (0,)
    answers = yield from exchange.ask(*(_ask_task(context, server) for server in servers))
    views = [_read_view(context, server, answer) for server, answer in zip(servers, answers, strict=True)]
    task = _decode_task(views[0]["task"])
    if len(servers) == 1 and context.transport_for(task) != RELAYED:
        (other,) = yield from exchange.ask(_ask_task(context, 1))
        _read_view(context, 1, other)
    yield from work(lambda: context.vault.keep_task(task))
    return task


def find_published(exchange: Exchange) -> Steps[Published]:
    """Return the version of the model that both servers announce."""
    context = exchange.context
    answers = yield from exchange.ask(*(_ask_task(context, server) for server in (0, 1)))
    views = [_read_view(context, server, answer) for server, answer in enumerate(answers)]
    versions = [(view.get("model_version"), _text(view, "model_digest")) for view in views]
    number, model_digest = versions[0]
    if versions[0] != versions[1] or type(number) is not int:
        raise UnavailableError(
            "the two servers announce different models", seconds=BETWEEN_ROUNDS, noticed=Misconduct.MODEL
        )
    try:
        return Published(number, bytes.fromhex(model_digest))
    except ValueError:
        raise RefusedError("this app cannot read the model that the servers announce; update the app") from None


def find_round(exchange: Exchange, task: TaskSpec, seed: bytes, *, server: int) -> Steps[str]:
    """Return the round that a server announces; raise if there is none, or if this device may not take part."""
    announced = yield from announced_round(exchange, server=server)
    if announced is None:
        raise (yield from _no_round(exchange))
    yield from check_privacy(exchange, decode_round(announced, task), seed)
    return announced


def announced_round(exchange: Exchange, *, server: int) -> Steps[str | None]:
    """Return the round that a server announces, if there is one."""
    (answer,) = yield from exchange.ask(_ask_task(exchange.context, server))
    view = _read_view(exchange.context, server, answer)
    return _text(view, "round") if view.get("round") is not None else None


def _no_round(exchange: Exchange) -> Steps[EndedError | UnavailableError]:
    """Return the error for a missing round: server 0 knows when the next one opens, and whether there will be one."""
    (answer,) = yield from exchange.ask(_ask_task(exchange.context, 0))
    view = _read_view(exchange.context, 0, answer)
    exchange.hear_of_rounds(view.get("rounds"))
    if view.get("ended") is True:
        return EndedError(ENDED)
    seconds = view.get("retry_after")
    if not isinstance(seconds, int) or not 0 < seconds <= LONGEST_WAIT:
        seconds = BETWEEN_ROUNDS
    return UnavailableError(_PAUSED if view.get("paused") is True else "no round is open", seconds=float(seconds))


def ask_how_rounds_ended(exchange: Exchange) -> Steps[None]:
    """Ask server 0 for the task again, if possible, because no more tickets will tell how the last rounds ended."""
    try:
        (answer,) = yield from exchange.ask(_ask_task(exchange.context, 0))
    except ExchangeError:
        return
    exchange.hear_of_rounds(json_object(answer.body).get("rounds"))


def check_privacy(exchange: Exchange, round_: RoundSpec, seed: bytes) -> Steps[None]:
    """Raise unless the task's privacy guarantee lets this device take part in a round.

    In a task with a guarantee a device takes part in a round at most once. If the guarantee assumes random sampling,
    participation is drawn for each round.
    """
    task, vault = round_.task, exchange.context.vault
    if task.privacy is None:
        return
    newest = yield from work(vault.newest_round)
    if newest is None:  # it may have been this one, so the device skips it, and knows for later ones
        yield from work(lambda: vault.enter_round(round_.number))
    if newest is None or round_.number <= newest:
        raise UnavailableError(
            "a device takes part in a round at most once, and this one may already have done so", seconds=_ONCE
        )
    if task.privacy.sampling_rate:
        exchange.tossed = round_.number
    if not takes_part(task, round_.encode(), seed):
        raise UnavailableError("this device was not sampled for the round", seconds=task.join_seconds)


def leave_out(exchange: Exchange) -> Steps[None]:
    """Skip the round that was drawn for already: another seed must not draw again."""
    tossed = exchange.tossed
    if tossed is not None:
        yield from work(lambda: exchange.context.vault.enter_round(tossed))


def takes_part(task: TaskSpec, round_: bytes, seed: bytes) -> bool:
    """Tell whether the session of this seed takes part in a round."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return True
    tossed = hashlib.blake2b(_DOMAIN + round_, key=seed, digest_size=8).digest()
    return int.from_bytes(tossed, "little") < decimal(task.privacy.sampling_rate) * 2.0**64


def ask_permission(exchange: Exchange, session_id: bytes, purpose: Purpose) -> Steps[Permission]:
    """Ask server 0 for a place in a round: to take part, or to read."""
    (answer,) = yield from exchange.ask(_ask_server0(exchange.context, session_id, purpose))
    exchange.hear_of_rounds(json_object(answer.body).get("rounds"))
    if answer.status != _GRANTED:
        paused = json_object(answer.body).get("paused") is True
        raise UnavailableError(_PAUSED if paused else _NO_ROUND[purpose], seconds=retry_after(answer) or BETWEEN_ROUNDS)
    found = _read(0, answer)
    _heed_deadline(exchange, answer, found)
    relay = found.get("relay")
    return Permission(
        round=_text(found, "round"),
        ticket=_text(found, "ticket", most=_LONGEST_TICKET),
        relay=relay if isinstance(relay, str) else None,
    )


def decode_round(text: str, task: TaskSpec) -> RoundSpec:
    """Return a round that a server announces."""
    try:
        return RoundSpec.decode(text.encode(), task)
    except SecEmbError as error:
        raise RefusedError("this app cannot read the round that the servers announce; update the app") from error


def _ask_task(context: Context, server: int) -> Request:
    return Request(server=server, method="GET", path=f"/v1/tasks/{context.current_task.hex()}", most=_MOST)


def _ask_server0(context: Context, session_id: bytes, purpose: Purpose) -> Request:
    headers = {"content-type": "application/json"}
    if context.token is not None:
        headers["authorization"] = f"Bearer {context.token}"
    body = json.dumps({"session": session_id.hex()}).encode()
    path = f"/v1/tasks/{context.current_task.hex()}/{purpose}"
    return Request(server=0, method="POST", path=path, headers=headers, body=body, most=_MOST)


def _read_view(context: Context, server: int, answer: Answer) -> dict[str, Any]:
    """Return a server's view of the task, if it is the pinned one."""
    view = _read(server, answer)
    if digest(_text(view, "task").encode()) != context.current_task:
        reason = (
            f"server {server} announces a different task from the one this device was opened with; nothing was sent"
        )
        raise PinError(reason, noticed=Misconduct.TASK)
    return view


def _read(server: int, answer: Answer) -> dict[str, Any]:
    found = json_object(answer.body)
    if not found:
        raise UnavailableError(f"no SecEmb server found at the address of server {server}; check the address")
    return found


def _text(found: dict[str, Any], name: str, *, most: int = _MOST) -> str:
    """Return a text that is valid in a header: it may be stored and sent repeatedly."""
    text = found.get(name)
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or len(text) > most:
        raise UnavailableError(_UNREADABLE)
    return text


def _decode_task(text: str) -> TaskSpec:
    try:
        return TaskSpec.decode(text.encode())
    except SecEmbError as error:
        raise RefusedError("this app cannot take part in the task; update the app") from error


def _heed_deadline(exchange: Exchange, answer: Answer, found: dict[str, Any]) -> None:
    """End before the round does, by the server's clock, because this device's may be wrong."""
    now, until = server_time(answer), found.get("upload_until")
    if now is not None and isinstance(until, int | float) and abs(until) < _LATEST:
        exchange.end_within(until - now)
