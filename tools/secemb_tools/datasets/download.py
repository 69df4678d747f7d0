"""MovieLens from its publisher: downloaded, verified against the published checksum, unpacked, and only then stored."""

import logging
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from secemb_tools.errors import DatasetError

PUBLISHER = "https://files.grouplens.org/datasets/movielens"
FOLDER = Path("build/data")
_SECONDS = 60.0  # without a byte
_CHUNK = 1 << 20

LICENCE = """\
MovieLens belongs to GroupLens Research at the University of Minnesota. It may be used for research; the use must be
acknowledged in publications and must not imply that the University endorses anything. It may not be redistributed,
or used for commercial or revenue-bearing purposes, without permission of a faculty member of GroupLens
(grouplens-info@umn.edu). The README in the archive has the full terms.
Cite: F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context.
ACM Transactions on Interactive Intelligent Systems 5, 4: 19:1-19:19. https://doi.org/10.1145/2827872"""


@dataclass(frozen=True, slots=True)
class Archive:
    """One of the publisher's files."""

    md5: str  # as published in a file next to the archive
    folder: str  # the directory inside the archive


ARCHIVES = {
    "ml-100k": Archive("0e33842e24a9c977be4e0107933c0723", "ml-100k"),
    "ml-1m": Archive("c4d9eecfca2ab87c1945afe126590906", "ml-1m"),
    "ml-10m": Archive("ce571fd55effeba0271552578f2648bd", "ml-10M100K"),
    "ml-25m": Archive("6b51fb2759a8657d3bfcbfc42b592ada", "ml-25m"),
}


class ProgressBar(Protocol):
    """The progress bar interface required by pooch."""

    total: int

    def update(self, count: int) -> None:
        """Add bytes."""

    def reset(self) -> None:
        """Start from zero."""

    def close(self) -> None:
        """End."""


def archive_named(name: str) -> Archive:
    """Return the archive with this name, or refuse the name."""
    if name not in ARCHIVES:
        raise DatasetError(f"unknown set {name!r}; choose one of {', '.join(ARCHIVES)}")
    return ARCHIVES[name]


def fetch(
    name: str, folder: Path, *, source: str | None = None, md5: str | None = None, progress: ProgressBar | None = None
) -> Path:
    """Download a set into a directory with its name in `folder`, and return it. An existing one is not changed."""
    archive, target = archive_named(name), folder / name
    if target.exists():
        raise DatasetError(f"{target} already exists; remove it to download the set again")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as unfinished:
        _retrieve(source or f"{PUBLISHER}/{name}.zip", md5 or archive.md5, Path(unfinished), progress)
        # Only this directory is kept; names in the archive cannot place a file outside it.
        found = Path(unfinished) / "unpacked" / archive.folder
        if not found.is_dir():
            raise DatasetError(f"the archive has no directory {archive.folder}; try again, or use another --from")
        found.replace(target)
    return target


def _retrieve(url: str, md5: str, folder: Path, progress: ProgressBar | None) -> None:
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(
            url,
            known_hash=f"md5:{md5}",
            fname="archive.zip",
            path=folder,
            processor=pooch.Unzip(extract_dir="unpacked"),
            downloader=pooch.HTTPDownloader(progressbar=progress or False, chunk_size=_CHUNK, timeout=_SECONDS),
        )
    except requests.HTTPError as error:
        raise DatasetError(f"{error}; check --from, or download by hand and use --path") from None
    except requests.RequestException as error:
        kind = type(error).__name__
        raise DatasetError(f"{url} cannot be reached ({kind}); download by hand and use --path") from None
    except zipfile.BadZipFile:
        raise DatasetError("the download is not a zip archive; try again, or use another --from") from None
    except ValueError:  # pooch's word for a hash that differs
        raise DatasetError(
            "the download does not have the published checksum; try again, or use another --from"
        ) from None


class _RichBar:
    """A rich progress bar with the methods that pooch calls."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._task = progress, progress.add_task(name, total=None)
        self._total = 0

    @property
    def total(self) -> int:
        """Return the expected number of bytes."""
        return self._total

    @total.setter
    def total(self, count: int) -> None:
        self._total = count
        self._progress.update(self._task, total=count or None)

    def update(self, count: int) -> None:
        """Add bytes."""
        self._progress.advance(self._task, count)

    def reset(self) -> None:
        """Start from zero; pooch does so at the end, before it sets the bar to its total."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Do nothing: the progress display ends with its context."""


def fetch_with_progress(name: str, into: Path, *, source: str | None, md5: str | None) -> Path:
    """Download a set and show the progress."""
    columns: tuple[Any, ...] = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True) as progress:
        return fetch(name, into, source=source, md5=md5, progress=_RichBar(progress, name))
