"""The state of one or both servers, for people and for programs."""

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from secemb_shared.messages import TaskSpec
from secemb_tools import output
from secemb_tools.errors import UnreachableError
from secemb_tools.operate.operator_api import OperatorLine

_ROUND = (
    *("number", "kind", "state", "admitted", "keys", "updates", "counted"),
    *("opened_at", "join_until", "upload_until"),
)


def standing_of(lines: list[OperatorLine]) -> dict[str, Any]:
    """Return the state of each server, and whether two of them agree."""
    servers = [_server(line) for line in lines]
    pair = len(servers) == 2
    return {
        "servers": servers,
        "same_task": servers[0]["task_id"] == servers[1]["task_id"] if pair else None,
        "digests_equal": servers[0]["model_digest"] == servers[1]["model_digest"] if pair else None,
    }


def _server(line: OperatorLine) -> dict[str, Any]:
    overview, ready = line.get("overview"), line.readiness()
    task = TaskSpec.decode(overview["task"].encode())
    published = [one for one in line.get("models") if one["published_at"] is not None]
    newest = max(published, key=lambda one: one["version"], default=None)
    return {
        "url": line.url,
        "role": overview["role"],
        "ready": ready.get("ready", False),
        "checks": [one for one in ready.get("checks", []) if not one.get("ok")],
        "task": task.name,
        "task_id": overview["task_id"],
        "cohort": task.cohort,
        "round": _round_facts(overview["round"]),
        "model_version": None if newest is None else newest["version"],
        "model_digest": None if newest is None else newest["digest"],
        "refusals": line.get("refusals"),
    }


def _round_facts(found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {name: found[name] for name in _ROUND}


Standing = dict[str, Any]
_NOBODY: Standing = {"servers": [], "same_task": None, "digests_equal": None}
_EQUAL = "the models are equal"
_DIFFERENT = "the models differ: a version is being published just now, or look at /readyz of server 0"


def picture(standing: Standing) -> Group:
    """Return a table with a column for each server, and what is wrong below it."""
    servers = standing["servers"]
    table = Table(box=None, pad_edge=False)
    table.add_column("", style="bold")
    for one in servers:
        table.add_column(f"server {one['role']}")
    for name, shown in _LINES:
        table.add_row(name, *(shown(one) for one in servers))
    return Group(table, *(Text(words) for words in _words(standing)))


def watch_standing(look: Callable[[], Standing], looks: Iterable[int], *, as_json: bool) -> Standing | None:
    """Show where servers stand again and again; with JSON one object a line.

    A server that does not answer is said, and asked again. Return what was seen last: no server where that failed, and
    nothing where Ctrl-C came before.
    """
    last: Standing | None = None
    console = Console(highlight=False)
    try:
        with (
            Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else nullcontext() as live
        ):
            for _ in looks:
                try:
                    last = look()
                except UnreachableError as error:
                    last = dict(_NOBODY)
                    _say_away(live, str(error))
                else:
                    _show(live, console, last, as_json=as_json)
    except KeyboardInterrupt:
        pass
    return last


def _say_away(live: Live | None, words: str) -> None:
    if live is None:
        output.note(words)
    else:
        live.update(Text(words), refresh=True)


def _show(live: Live | None, console: Console, standing: Standing, *, as_json: bool) -> None:
    if live is not None:
        live.update(picture(standing), refresh=True)
    elif as_json:
        print(json.dumps(standing, allow_nan=False), flush=True)
    else:
        console.print(picture(standing))


def _words(standing: Standing) -> Iterable[str]:
    for one in standing["servers"]:
        for check in one["checks"]:
            yield f"server {one['role']}: {check['check']}: {check['hint']}"
    if standing["same_task"] is False:
        yield "the servers serve different tasks; compare `secemb task show` on both sides"
    if standing["digests_equal"] is not None:
        yield _EQUAL if standing["digests_equal"] else _DIFFERENT


def _round(one: dict[str, Any]) -> str:
    found = one["round"]
    if found is None:
        return "none is open"
    return f"{found['number']} {found['kind']}, {found['state']}"


def _devices(one: dict[str, Any]) -> str:
    found = one["round"]
    if found is None:
        return "-"
    return f"{found['admitted']} joined, {found['keys']} keys, {found['updates']} updates of {one['cohort']}"


def _model(one: dict[str, Any]) -> str:
    return "-" if one["model_version"] is None else f"{one['model_version']} {one['model_digest'][:16]}"


_LINES: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("address", lambda one: str(one["url"])),
    ("ready", lambda one: "yes" if one["ready"] else "NO"),
    ("task", lambda one: f"{one['task']} {one['task_id'][:16]}"),
    ("round", _round),
    ("devices", _devices),
    ("model", _model),
    ("refused", lambda one: str(sum(one["refusals"].values()))),
)
