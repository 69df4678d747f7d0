"""A download with a bar."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from secemb_tools.datasets.fetching import fetch


def fetch_with_progress(name: str, into: Path, *, source: str | None, md5: str | None) -> Path:
    """Fetch a set and show how far it is."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task(name, total=None)
        return fetch(
            name,
            into,
            source=source,
            md5=md5,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
