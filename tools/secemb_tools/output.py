"""Command output: tables for people, JSON for programs, notes on stderr."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from secemb_sdk import Recommendation

Facts = Mapping[str, object]
_WIDEST_ID = 30  # columns reserved for an id next to a long title


def show_facts(facts: Facts, *, as_json: bool) -> None:
    """Print names and values."""
    if as_json:
        show_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _written(value))
    _console().print(table)


def show_rows(columns: Sequence[str], rows: Sequence[Facts], *, as_json: bool) -> None:
    """Print one line per row."""
    if as_json:
        show_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_written(row[name]) for name in columns))
    _console().print(table)


def show_items(found: "Sequence[Recommendation]", *, as_json: bool) -> None:
    """Print recommended items, one line each: with their ids and titles, or by row if there are none."""
    if as_json:
        show_json([one._asdict() for one in found])
        return
    named = any(one.id is not None for one in found)
    names = [_printable(one.id) if named else str(one.item) for one in found]
    table = Table(box=None, pad_edge=False)
    table.add_column(
        "id" if named else "item", no_wrap=True, min_width=min(_WIDEST_ID, max(map(len, names), default=2))
    )
    table.add_column("score", no_wrap=True, min_width=6, justify="right")
    if named:
        table.add_column("title", no_wrap=True)
    for name, one in zip(names, found, strict=True):
        table.add_row(name, f"{one.score:.3f}", *([_printable(one.title)] if named else []))
    _console().print(table)


def _printable(text: str | None) -> str:
    """Sanitise an untrusted text so that it cannot move the cursor, colour the terminal or break the line."""
    return "".join(sign if sign.isprintable() else " " for sign in text or "-")


def show_json(data: Any) -> None:
    """Print JSON, and nothing else, to stdout."""
    print(json.dumps(data, indent=2, allow_nan=False))


def show(picture: RenderableType) -> None:
    """Print anything that rich can render."""
    _console().print(picture)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show on stderr that something takes time, and what a device is waiting for."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with waits(console), console.status(text):
        yield


@contextmanager
def waits(console: Console | None = None) -> Iterator[None]:
    """Show on stderr what a device is waiting for, and for how many seconds."""
    log, handler = logging.getLogger("secemb_sdk"), _Notes(console or Console(stderr=True, soft_wrap=True))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


class _Notes(logging.Handler):
    """Prints the SDK's progress messages."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), markup=False, highlight=False)


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr; yield a function to report each further part."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda more: bar.advance(task, more)


def note(text: str) -> None:
    """Print a note to stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(text)


def refuse(text: str) -> None:
    """Print an error's message to stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print("[red]error:[/red]", escape(text))


def _console() -> Console:
    # Wider than a fingerprint, even without a terminal: values to be copied must not be wrapped.
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=160)


def _written(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def console_for(*, as_json: bool, width: int = 150) -> Console:
    """Return the console for tables and progress: stderr if stdout has JSON; this wide without a terminal."""
    console = Console(stderr=as_json)
    return console if console.is_terminal else Console(width=width, stderr=as_json)


def write_figures(console: Console, output: Path, figures: dict[str, Any], *, as_json: bool) -> None:
    """Write figures as JSON; with `as_json` print them too."""
    document = json.dumps(figures, indent=1)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(document + "\n")
    console.print(f"figures written to {output}")
    if as_json:
        print(document)
