"""A bar for rounds, with the error that was measured last."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class RoundsBar:
    """How far a run is; in a file, where a bar is of no use, a line for each error."""

    def __init__(self, console: Console, name: str, *, rounds: int) -> None:
        self._console, self._name = console, name
        self.progress = Progress(
            TextColumn("{task.description:7}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[error]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self.progress.add_task(name, total=rounds, error="")

    def show(self, done: int, rmse: float | None) -> None:
        """Show that so many rounds are done, and the error if it was measured after the last of them."""
        self.progress.update(self._task, completed=done)
        if rmse is None:
            return
        self.progress.update(self._task, error=f"RMSE {rmse:.4f}")
        if not self._console.is_terminal:
            self._console.print(f"{self._name} round {done}: RMSE {rmse:.4f}")
