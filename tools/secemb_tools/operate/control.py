"""Control of a running server through its operator API: pause, drain, close or abort the open round."""

import time
from collections.abc import Callable

from typing_extensions import TypedDict

from secemb_tools.errors import OperationError
from secemb_tools.operate.operator_api import OperatorClient
from secemb_tools.operate.operator_tokens import when

_PAUSE = 0.2
_OPEN = "open"


class Instruction(TypedDict):
    """An instruction to the server by its operator."""

    by: str
    reason: str
    at: float


class PeerPause(TypedDict):
    """The reason why the other server does not start new rounds."""

    what: str  # pause or drain
    reason: str
    since: float


class Control(TypedDict):
    """The control state of a task at one server, and the last known state at the other."""

    paused: Instruction | None
    draining: Instruction | None
    safe_to_stop: bool
    unfinished: str | None
    closing: Instruction | None
    aborting: Instruction | None
    peer: PeerPause | None


class RoundEnd(TypedDict):
    """The outcome of a round."""

    round: int
    state: str
    counted: int | None  # sessions in its sum
    reason: str | None  # why it was aborted


def steer(client: OperatorClient, path: str, reason: str | None) -> Control:
    """Send an instruction to a server, and return the resulting state."""
    found: Control = client.post(path, **({"reason": reason} if reason else {}))
    return found


def wait_until_safe(client: OperatorClient, control: Control, *, wait: float) -> Control:
    """Return the state once a drained server can be stopped, or after a timeout."""
    end = time.monotonic() + wait
    while not control["safe_to_stop"] and time.monotonic() < end:
        time.sleep(_PAUSE)
        control = client.get("control")
    return control


def end_round(client: OperatorClient, how: str, reason: str, *, wait: float) -> RoundEnd:
    """Close or abort the open round, and return its outcome, or its state after a timeout."""
    current = client.get("overview")["round"]
    if current is None:
        raise OperationError("no round is open; there is nothing to close (`secemb status` shows the state)")
    number = int(current["number"])
    client.post(f"rounds/{number}/{how}", reason=reason)
    end, found = time.monotonic() + wait, client.get(f"rounds/{number}")
    while found["ended_at"] is None and time.monotonic() < end:
        time.sleep(_PAUSE)
        found = client.get(f"rounds/{number}")
    return {"round": number, "state": found["state"], "counted": found["counted"], "reason": found["reason"]}


def describe(control: Control, role: int) -> dict[str, str]:
    """Return the control state, in words."""
    told = {"this server": _words(control), f"server {1 - role}": _peer_words(control["peer"])}
    if control["draining"] is not None:
        told["safe to stop"] = "yes" if control["safe_to_stop"] else f"not yet: {control['unfinished']}"
    return told


def _words(control: Control) -> str:
    given: tuple[tuple[str, Instruction | None], ...] = (
        ("paused", control["paused"]),
        ("draining", control["draining"]),
        ("closing the round, requested", control["closing"]),
        ("aborting the round, requested", control["aborting"]),
    )
    said = [f"{what} by {one['by']} since {when(one['at'])}: {one['reason']}" for what, one in given if one]
    return "; ".join(said) or "taking part"


def _peer_words(found: PeerPause | None) -> str:
    if found is None:
        return "taking part, as far as this server knows"
    what = "draining" if found["what"] == "drain" else "paused"
    return f"{what} since {when(found['since'])}: {found['reason']}"


def in_short(control: Control) -> str:
    """Return the state of a server's task for a table."""
    states: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("paused", lambda: control["paused"] is not None),
        ("drained, safe to stop", lambda: control["safe_to_stop"]),
        ("draining", lambda: control["draining"] is not None and not control["safe_to_stop"]),
        ("waiting for the other server", lambda: control["peer"] is not None),
    )
    return ", ".join(name for name, holds in states if holds()) or "-"
