"""The state of one or both servers, for people and for programs."""

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from secemb_shared.messages import TaskSpec
from secemb_tools import output
from secemb_tools.errors import UnreachableError
from secemb_tools.operate.control import Control, describe, in_short
from secemb_tools.operate.operator_api import OperatorClient


class OpenRound(TypedDict):
    """A server's open round."""

    number: int
    kind: str
    state: str
    admitted: int
    keys: int
    updates: int
    counted: int | None
    opened_at: float
    join_until: float
    upload_until: float
    waiting: bool


class Failing(TypedDict):
    """A failing readiness check."""

    check: str
    ok: bool
    hint: str | None


class ServerStatus(TypedDict):
    """The state of one server."""

    url: str
    role: int
    ready: bool
    checks: list[Failing]
    task: str
    task_id: str
    cohort: int
    rounds: int
    trained_rounds: int
    finished: bool
    control: Control
    round: OpenRound | None
    model_version: int | None
    model_digest: str | None
    refusals: dict[str, int]


class Status(TypedDict):
    """The state of one or two servers, and whether two agree."""

    servers: list[ServerStatus]
    away: list[str]  # the servers that do not respond, and why
    same_task: bool | None
    digests_equal: bool | None


def read_status(clients: list[OperatorClient]) -> Status:
    """Return the state of each task of each responding server, and whether two servers agree."""
    servers: list[ServerStatus] = []
    away: list[UnreachableError] = []
    for client in clients:
        try:
            servers += [_server(one) for one in client.each_task()]
        except UnreachableError as error:
            away.append(error)
    if not servers and away:
        raise away[0]
    roles = [[one for one in servers if one["role"] == role] for role in (0, 1)]
    pair = all(roles)
    return {
        "servers": servers,
        "away": list(map(str, away)),
        "same_task": {one["task_id"] for one in roles[0]} == {one["task_id"] for one in roles[1]} if pair else None,
        "digests_equal": all(len(one) == 1 for one in _by_task(servers, "model_digest").values()) if pair else None,
    }


def _by_task(servers: list[ServerStatus], fact: Literal["model_digest", "model_version"]) -> dict[str, set[Any]]:
    """Return the different values of a fact, by task."""
    found: dict[str, set[Any]] = {}
    for one in servers:
        found.setdefault(one["task_id"], set()).add(one[fact])
    return found


def _server(client: OperatorClient) -> ServerStatus:
    overview, ready = client.get("overview"), client.readiness()
    task = TaskSpec.decode(overview["task"].encode())
    published = [one for one in client.get("models") if one["published_at"] is not None]
    newest = max(published, key=lambda one: one["version"], default=None)
    return {
        "url": client.url,
        "role": overview["role"],
        "ready": ready.get("ready", False),
        "checks": [one for one in ready.get("checks", []) if not one.get("ok")],
        "task": task.name,
        "task_id": overview["task_id"],
        "cohort": task.cohort,
        "rounds": task.rounds,
        "trained_rounds": overview["trained_rounds"],
        "finished": overview["finished"],
        "control": client.get("control"),
        "round": _open_round(overview["round"]),
        "model_version": None if newest is None else newest["version"],
        "model_digest": None if newest is None else newest["digest"],
        "refusals": client.get("refusals"),
    }


def _open_round(found: dict[str, Any] | None) -> OpenRound | None:
    if found is None:
        return None
    return {
        "number": found["number"],
        "kind": found["kind"],
        "state": found["state"],
        "admitted": found["admitted"],
        "keys": found["keys"],
        "updates": found["updates"],
        "counted": found["counted"],
        "opened_at": found["opened_at"],
        "join_until": found["join_until"],
        "upload_until": found["upload_until"],
        "waiting": found["waiting"],
    }


_NO_SERVER: Status = {"servers": [], "away": [], "same_task": None, "digests_equal": None}
_EQUAL = "the models match"
_DIFFERENT = "the models differ: a version may be being published right now; if this persists, see /readyz of server 0"


def is_healthy(status: Status) -> bool:
    """Tell whether every server is ready and two agree."""
    servers = status["servers"]
    ready = bool(servers) and not status["away"] and all(one["ready"] for one in servers)
    # While a version is being published, one server is briefly ahead; a version has the same digest everywhere.
    versions, digests = _by_task(servers, "model_version"), _by_task(servers, "model_digest")
    differ = any(len(digests[task]) > 1 and len(versions[task]) == 1 for task in versions)
    return ready and status["same_task"] is not False and not differ


def picture(status: Status) -> Group:
    """Return a table with a column for each server, and what is wrong below it."""
    servers = status["servers"]
    table = Table(box=None, pad_edge=False)
    table.add_column("", style="bold")
    for one in servers:
        table.add_column(f"server {one['role']}")
    for name, shown in _LINES:
        table.add_row(name, *(shown(one) for one in servers))
    return Group(table, *(Text(words) for words in _remarks(status)))


def watch_status(read: Callable[[], Status], ticks: Iterable[int], *, as_json: bool) -> Status | None:
    """Show the state of servers repeatedly; with JSON, one object per line.

    A server that does not respond is reported and retried. Return the last state: without servers if that failed,
    and None if Ctrl-C came before the first.
    """
    last: Status | None = None
    console = Console(highlight=False)
    try:
        with (
            Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else nullcontext() as live
        ):
            for _ in ticks:
                try:
                    last = read()
                except UnreachableError as error:
                    last = _NO_SERVER
                    _show_unreachable(live, str(error))
                else:
                    _show(live, console, last, as_json=as_json)
    except KeyboardInterrupt:
        pass
    return last


def _show_unreachable(live: Live | None, words: str) -> None:
    if live is None:
        output.note(words)
    else:
        live.update(Text(words), refresh=True)


def _show(live: Live | None, console: Console, status: Status, *, as_json: bool) -> None:
    if live is not None:
        live.update(picture(status), refresh=True)
    elif as_json:
        print(json.dumps(status, allow_nan=False), flush=True)
    else:
        console.print(picture(status))


def _remarks(status: Status) -> Iterable[str]:
    yield from status["away"]
    for one in status["servers"]:
        if in_short(one["control"]) != "-":
            for name, words in describe(one["control"], one["role"]).items():
                yield f"server {one['role']}: {name}: {words}"
        for check in one["checks"]:
            yield f"server {one['role']}: {check['check']}: {check['hint']}"
    if status["same_task"] is False:
        yield "the servers have different tasks; compare `secemb task show` on both"
    if status["digests_equal"] is not None:
        yield _EQUAL if status["digests_equal"] else _DIFFERENT


def _round(one: ServerStatus) -> str:
    found = one["round"]
    if found is None:
        return "none: the task has ended" if one["finished"] else "none open"
    return f"{found['number']} {found['kind']}, {'waiting for devices' if found['waiting'] else found['state']}"


def _devices(one: ServerStatus) -> str:
    found = one["round"]
    if found is None:
        return "-"
    return f"{found['admitted']} joined, {found['keys']} keys, {found['updates']} updates of {one['cohort']}"


def _model(one: ServerStatus) -> str:
    return "-" if one["model_digest"] is None else f"{one['model_version']} {one['model_digest'][:16]}"


_LINES: tuple[tuple[str, Callable[[ServerStatus], str]], ...] = (
    ("address", lambda one: str(one["url"])),
    ("ready", lambda one: "yes" if one["ready"] else "NO"),
    ("task", lambda one: f"{one['task']} {one['task_id'][:16]}"),
    ("trained", lambda one: f"{one['trained_rounds']:,} of {one['rounds']:,} rounds"),
    ("paused", lambda one: in_short(one["control"])),
    ("round", _round),
    ("devices", _devices),
    ("model", _model),
    ("refused", lambda one: str(sum(one["refusals"].values()))),
)
