"""The live view of the demonstration: one line of at most 80 columns per round, and a progress bar on a terminal."""

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from secemb_tools.local.rounds import RoundRecord

LINES = 12  # rounds shown at a time
_HEADS = {  # of the columns, with their widths without a terminal
    "round": 7,
    "kind": 8,
    "read": 5,
    "sent": 5,
    "counted": 7,
    "dropped": 7,
    "seconds": 7,
    "RMSE": 5,
    "kB": 4,
    "model": 13,
}
_LEFT = ("round", "kind", "model")  # aligned to the left


class LiveView:
    """Shows rounds on a console."""

    def __init__(self, console: Console, *, rounds: int) -> None:
        self._console, self._rounds = console, rounds
        self._lines: deque[tuple[str, ...]] = deque(maxlen=LINES)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds,"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("starting two servers", total=rounds)
        self._live = Live(self._picture(), console=console, refresh_per_second=8) if console.is_terminal else None
        self._rmse: float | None = None
        self._has_heads = False  # printed without a terminal

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
            self._live.stop()

    def say(self, words: str) -> None:
        """Show the current activity."""
        self._bar.update(self._task, description=words)
        if self._live is not None:
            self._live.update(self._picture())

    def show(self, record: RoundRecord, *, kilobytes: float) -> None:
        """Add a line for a round."""
        self._rmse = record.figures.get("rmse", self._rmse)
        cells = _cells(record, self._rmse, kilobytes, rounds=self._rounds)
        self._bar.advance(self._task)
        if self._live is not None:
            self._lines.append(_coloured(record, cells))
            self._live.update(self._picture())
            return
        if not self._has_heads:
            self._console.print(_plain(_HEADS), soft_wrap=True)
            self._has_heads = True
        self._console.print(_plain(cells), soft_wrap=True)

    def _picture(self) -> Group:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
        for name in _HEADS:
            table.add_column(name, justify="left" if name in _LEFT else "right")
        for line in self._lines:
            table.add_row(*line)
        return Group(table, self._bar) if self._lines else Group(self._bar)


def _cells(record: RoundRecord, rmse: float | None, kilobytes: float, *, rounds: int) -> list[str]:
    """Return a round: how many devices read, sent and counted on both servers, and whether both have the same model."""
    equal = "=" if record.digests_equal else "≠"
    return [
        f"{record.round + 1}/{rounds}",
        record.kind,
        *map(str, (record.retrieved, record.uploaded, record.matched, record.dropped)),
        f"{record.seconds:.1f}",
        _error(rmse),
        f"{kilobytes:.0f}",
        f"v{record.version} {record.digest[:6]} {equal}",
    ]


def _plain(cells: Iterable[str]) -> str:
    """Return a line for a file or a pipe."""
    columns = zip(cells, _HEADS.items(), strict=True)
    return " ".join(f"{cell:{'<' if name in _LEFT else '>'}{width}}" for cell, (name, width) in columns).rstrip()


def _coloured(record: RoundRecord, cells: list[str]) -> tuple[str, ...]:
    fresh = "rmse" in record.figures
    styles = {"kind": "cyan" if fresh else "none", "RMSE": "bold" if fresh else "dim"}
    if not record.digests_equal:
        styles["model"] = "red"
    return tuple(
        f"[{styles[name]}]{cell}[/]" if name in styles else cell for name, cell in zip(_HEADS, cells, strict=True)
    )


def _error(rmse: float | None) -> str:
    return "-" if rmse is None else f"{rmse:.3f}"
