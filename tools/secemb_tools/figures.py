"""How measurements end: tables on a console, figures in a file."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console


def console_for(*, as_json: bool, width: int = 150) -> Console:
    """Return where tables and progress go: not where figures are printed, and so wide where nobody watches."""
    console = Console(stderr=as_json)
    return console if console.is_terminal else Console(width=width, stderr=as_json)


def write_figures(console: Console, output: Path, figures: dict[str, Any], *, as_json: bool) -> None:
    """Write figures as JSON; with `as_json` print them too."""
    document = json.dumps(figures, indent=1)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(document + "\n")
    console.print(f"figures in {output}")
    if as_json:
        print(document)
