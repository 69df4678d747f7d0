"""The findings of a preflight as they come in."""

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from secemb_tools.operate.answer import show_json
from secemb_tools.operate.finding import Finding
from secemb_tools.operate.preflight import check_all

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


async def report(path: Path, *, offline: bool, as_json: bool) -> bool:
    """Print each finding and return whether the server can run."""
    found = []
    console = Console(highlight=False, soft_wrap=True)
    async for finding in check_all(path, offline=offline):
        found.append(finding)
        if not as_json:
            console.print(_line(finding))
    sound = all(finding.status != "fail" for finding in found)
    if as_json:
        show_json({"ok": sound, "checks": [asdict(finding) for finding in found]})
    return sound


def _line(finding: Finding) -> Text:
    line = Text.assemble((f"{finding.status:4} ", _STYLE[finding.status]), f"{finding.check:20} {finding.text}")
    return line.append(f"\n     fix: {finding.fix}") if finding.fix else line
