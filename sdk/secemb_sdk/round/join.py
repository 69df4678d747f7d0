"""Before a session: the task as both servers show it, and a place in a round that both announce."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from secemb_sdk.context import Context
from secemb_sdk.errors import PinError, RefusedError, UnavailableError
from secemb_sdk.exchange import Exchange, retry_after, server_time
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.recommend import Published
from secemb_sdk.round.route_relayed import expect_key, fetch_announcement, take_key
from secemb_sdk.round.session import session_id_of
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal, digest

_DOMAIN = b"secemb/1 takes part"


def takes_part(task: TaskSpec, round_: bytes, seed: bytes) -> bool:
    """Tell whether the session of this seed takes part in a round."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return True
    tossed = hashlib.blake2b(_DOMAIN + round_, key=seed, digest_size=8).digest()
    return int.from_bytes(tossed, "little") < decimal(task.privacy.sampling_rate) * 2.0**64


_LONGEST = 128


def read_ticket(found: Any) -> str:
    """Return a ticket, if it can travel in a header: it may be stored, and would be tried again and again."""
    if isinstance(found, str) and found.isascii() and found.isprintable() and len(found) <= _LONGEST:
        return found
    raise UnavailableError("a server's answer is not what this app understands; update the app")


_BETWEEN_ROUNDS = 2.0  # seconds until there may be a round again
_ONCE = 5.0  # seconds until a round may have ended that this device has been in
_JOINED = 200
_LATEST = 1e12  # seconds since 1970 that no deadline reaches
_MOST = 1 << 16  # bytes of a task with its round, or of a ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A place in a round."""

    round: RoundSpec
    ticket: str = field(repr=False)
    relay: bytes | None = field(default=None, repr=False)  # the announced key, where everything goes through server 0


def find_task(context: Context, exchange: Exchange) -> Steps[TaskSpec]:
    """Return the task: from the home, or for the first time from both servers."""
    known = yield from work(context.vault.task)
    if known is not None:
        return known
    # Its digest is the pinned id: who shows it does not matter. Both are asked where both are needed later.
    servers = (0, 1) if context.transport == "direct" else (0,)
    answers = yield from exchange.ask(*(_ask_task(context, server) for server in servers))
    views = [_read_view(context, server, answer) for server, answer in zip(servers, answers, strict=True)]
    task = _decode_task(views[0]["task"])
    if len(servers) == 1 and not context.relays(task):
        (other,) = yield from exchange.ask(_ask_task(context, 1))
        _read_view(context, 1, other)
    yield from work(lambda: context.vault.keep_task(task))
    return task


def find_published(context: Context, exchange: Exchange) -> Steps[Published]:
    """Return the version of the model that both servers announce."""
    answers = yield from exchange.ask(*(_ask_task(context, server) for server in (0, 1)))
    views = [_read_view(context, server, answer) for server, answer in enumerate(answers)]
    versions = [(view.get("model_version"), _text(view, "model_digest")) for view in views]
    number, model_digest = versions[0]
    if versions[0] != versions[1] or type(number) is not int:
        raise UnavailableError(
            "the two servers announce different models", seconds=_BETWEEN_ROUNDS, noticed=Misconduct.MODEL
        )
    try:
        return Published(number, bytes.fromhex(model_digest))
    except ValueError:
        raise RefusedError("the servers announce a model that this app cannot read; update the app") from None


def join(context: Context, exchange: Exchange, task: TaskSpec, seed: bytes) -> Steps[Joined]:
    """Take a place in the round that both servers announce; raise `UnavailableError` where there is none.

    In a task that promises privacy a device takes part in a round once at most. Where the promise counts on chance, a
    coin decides for each round. Who may not take part does not join.
    """
    way = _join_relayed if context.relays(task) else _join_directly
    joined = yield from way(context, exchange, task, seed)
    yield from _heed_privacy(context, task, joined.round, seed)  # server 0 may have opened the next one in between
    return joined


def _join_directly(context: Context, exchange: Exchange, task: TaskSpec, seed: bytes) -> Steps[Joined]:
    """Take a place in the round that both servers announce."""
    announced: str | None = yield from _find_round(context, exchange, task, seed, server=1)
    found = yield from _enter(context, exchange, session_id_of(seed))
    if announced != found.get("round"):
        # Server 0 may have opened the next round between the two questions; then server 1 knows it by now.
        announced = yield from _announced(context, exchange)
    if announced != found.get("round"):
        raise UnavailableError(
            "the two servers announce different rounds", seconds=_BETWEEN_ROUNDS, noticed=Misconduct.ROUND
        )
    return Joined(round=_decode_round(_text(found, "round"), task), ticket=read_ticket(found.get("ticket")))


def _join_relayed(context: Context, exchange: Exchange, task: TaskSpec, seed: bytes) -> Steps[Joined]:
    """Take a place in the round that server 0 announces; server 1 refuses what was sealed for any other."""
    if task.privacy is not None:
        yield from _find_round(context, exchange, task, seed, server=0)
    yield from expect_key(context, exchange, task)
    found = yield from _enter(context, exchange, session_id_of(seed))
    round_, shown = _decode_round(_text(found, "round"), task), found.get("relay")
    if isinstance(shown, str):
        relay = yield from take_key(context, task, shown)
    else:
        relay = yield from fetch_announcement(context, exchange, task)
    return Joined(round=round_, ticket=read_ticket(found.get("ticket")), relay=relay)


def _find_round(context: Context, exchange: Exchange, task: TaskSpec, seed: bytes, *, server: int) -> Steps[str]:
    """Return the round that a server takes part in; raise where there is none, or this device may not take part."""
    announced = yield from _announced(context, exchange, server=server)
    if announced is None:
        raise UnavailableError("no round is open", seconds=_BETWEEN_ROUNDS)
    yield from _heed_privacy(context, task, _decode_round(announced, task), seed)
    return announced


def _heed_privacy(context: Context, task: TaskSpec, round_: RoundSpec, seed: bytes) -> Steps[None]:
    if task.privacy is None:
        return
    newest = yield from work(context.vault.newest_round)
    if newest is None:  # nobody knows whether it was this one; sitting it out, the device knows again
        yield from work(lambda: context.vault.enter_round(round_.number))
    if newest is None or round_.number <= newest:
        raise UnavailableError("this device has been in this round, and once is what it promises", seconds=_ONCE)
    if not takes_part(task, round_.encode(), seed):
        raise UnavailableError("this device sits the round out, by chance", seconds=task.join_seconds)


def _enter(context: Context, exchange: Exchange, session_id: bytes) -> Steps[dict[str, Any]]:
    """Ask server 0 for a place."""
    (answer,) = yield from exchange.ask(_ask_join(context, session_id))
    if answer.status != _JOINED:
        raise UnavailableError("no round takes devices in", seconds=retry_after(answer) or _BETWEEN_ROUNDS)
    found = _read(0, answer)
    _heed_deadline(exchange, answer, found)
    return found


def _announced(context: Context, exchange: Exchange, *, server: int = 1) -> Steps[str | None]:
    """Return the round that a server takes part in."""
    (answer,) = yield from exchange.ask(_ask_task(context, server))
    view = _read_view(context, server, answer)
    return _text(view, "round") if view.get("round") is not None else None


def _ask_task(context: Context, server: int) -> Request:
    return Request(server=server, method="GET", path=f"/v1/tasks/{context.task_id.hex()}", most=_MOST)


def _ask_join(context: Context, session_id: bytes) -> Request:
    headers = {"content-type": "application/json"}
    if context.token is not None:
        headers["authorization"] = f"Bearer {context.token}"
    body = json.dumps({"session": session_id.hex()}).encode()
    path = f"/v1/tasks/{context.task_id.hex()}/join"
    return Request(server=0, method="POST", path=path, headers=headers, body=body, most=_MOST)


def _read_view(context: Context, server: int, answer: Answer) -> dict[str, Any]:
    """Return what a server says about the task, if it is the pinned one."""
    view = _read(server, answer)
    if digest(_text(view, "task").encode()) != context.task_id:
        words = f"server {server} shows another task than the one this device was opened with; nothing was sent"
        raise PinError(words, noticed=Misconduct.TASK)
    return view


def _read(server: int, answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnavailableError(f"what answers in place of server {server} is no SecEmb server; check its address")
    return found


def _text(found: dict[str, Any], name: str) -> str:
    text = found.get(name)
    if not isinstance(text, str) or not text.isascii() or not text.isprintable():
        raise UnavailableError("a server's answer is not what this app understands; update the app")
    return text


def _decode_task(text: str) -> TaskSpec:
    try:
        return TaskSpec.decode(text.encode())
    except SecEmbError as error:
        raise RefusedError("this app cannot take part in the task; update the app") from error


def _decode_round(text: str, task: TaskSpec) -> RoundSpec:
    try:
        return RoundSpec.decode(text.encode(), task)
    except SecEmbError as error:
        raise RefusedError("the servers announce a round that this app cannot read; update the app") from error


def _heed_deadline(exchange: Exchange, answer: Answer, found: dict[str, Any]) -> None:
    """End before the round does: by the server's own clock, because this device's may show anything."""
    now, until = server_time(answer), found.get("upload_until")
    if now is not None and isinstance(until, int | float) and abs(until) < _LATEST:
        exchange.end_within(until - now)
