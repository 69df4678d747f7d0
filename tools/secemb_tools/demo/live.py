"""The demonstration as it runs: one line per round and a progress bar, or plain lines without a terminal."""

from collections import deque
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from secemb_tools.local.rounds import RoundRecord

LINES = 12  # rounds shown at a time
_COLUMNS = ("round", "", "retrieved", "uploaded", "matched", "dropped", "seconds", "fleet RMSE", "kB/device", "model")


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
        """Show what is being done."""
        self._bar.update(self._task, description=words)
        if self._live is not None:
            self._live.update(self._picture())

    def show(self, record: RoundRecord, *, kilobytes: float) -> None:
        """Add the line of a round."""
        self._rmse = record.figures.get("rmse", self._rmse)
        line = _line(record, self._rmse, kilobytes)
        self._lines.append(line)
        self._bar.advance(self._task)
        if self._live is not None:
            self._live.update(self._picture())
        else:
            self._console.print(plain_line(record, self._rmse, kilobytes, rounds=self._rounds), soft_wrap=True)

    def _picture(self) -> Group:
        table = Table(*_COLUMNS, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
        for column in table.columns[2:]:
            column.justify = "right"
        for line in self._lines:
            table.add_row(*line)
        return Group(table, self._bar) if self._lines else Group(self._bar)


def plain_line(record: RoundRecord, rmse: float | None, kilobytes: float, *, rounds: int) -> str:
    """Return a round as a line for a file or a pipe."""
    return (
        f"round {record.round} ({record.round + 1}/{rounds}) {record.kind}: {record.retrieved} retrieved, "
        f"{record.uploaded} uploaded, {record.matched} matched, {record.dropped} dropped, {record.seconds:.1f} s, "
        f"fleet RMSE {_error(rmse)}, {kilobytes:.0f} kB per device, model {record.version}, "
        f"digests {'equal' if record.digests_equal else 'DIFFER'}"
    )


def _line(record: RoundRecord, rmse: float | None, kilobytes: float) -> tuple[str, ...]:
    fresh = "rmse" in record.figures
    equal = "[green]=[/green]" if record.digests_equal else "[red]≠[/red]"
    return (
        str(record.round),
        "[cyan]evaluate[/cyan]" if fresh else record.kind,
        str(record.retrieved),
        str(record.uploaded),
        str(record.matched),
        str(record.dropped),
        f"{record.seconds:.1f}",
        f"[bold]{_error(rmse)}[/bold]" if fresh else f"[dim]{_error(rmse)}[/dim]",
        f"{kilobytes:.0f}",
        f"v{record.version} {record.digest[:6]} {equal} {record.digest[:6] if record.digests_equal else 'other'}",
    )


def _error(rmse: float | None) -> str:
    return "-" if rmse is None else f"{rmse:.3f}"
