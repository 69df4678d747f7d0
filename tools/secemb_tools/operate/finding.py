"""What a preflight check found out about one thing."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `secemb check`."""

    check: str
    status: Status
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """Return that something is in order."""
    return Finding(check, "ok", text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Return that something works but should be looked at."""
    return Finding(check, "warn", text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Return that the server cannot run like this."""
    return Finding(check, "fail", text, fix)
