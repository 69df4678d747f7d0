"""Findings of `secemb check`: what was checked, whether it is in order, and how to fix it."""

from dataclasses import dataclass
from typing import Literal

from rich.text import Text

Status = Literal["ok", "warn", "fail"]
_STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `secemb check`: what was checked, whether it is in order, and how to fix it."""

    check: str
    status: Status
    text: str
    fix: str = ""

    def line(self) -> Text:
        """Return the finding for a terminal."""
        line = Text.assemble((f"{self.status:4} ", _STYLES[self.status]), f"{self.check:20} {self.text}")
        return line.append(f"\n     fix: {self.fix}") if self.fix else line


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings; `ok` unless one of them keeps the server from running."""

    ok: bool
    checks: list[Finding]


def ok(check: str, text: str) -> Finding:
    """Report that something is in order."""
    return Finding(check, "ok", text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Report that something works but needs attention."""
    return Finding(check, "warn", text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Report that the server cannot run like this."""
    return Finding(check, "fail", text, fix)
