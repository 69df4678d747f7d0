"""MovieLens from its publisher: downloaded, compared with the published checksum, unpacked, and only then there."""

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from secemb_tools.errors import DatasetError

PUBLISHER = "https://files.grouplens.org/datasets/movielens"
FOLDER = Path("build/data")
_CHUNK = 1 << 20
_LARGEST = 1 << 31  # bytes of an archive
_SILENT_SECONDS = 60.0

LICENCE = """\
MovieLens is GroupLens Research's, University of Minnesota. It may be used for research; the use must be acknowledged in
publications and must not imply that the University endorses anything. It may not be redistributed without permission,
nor used for commercial or revenue-bearing purposes without permission of a faculty member of GroupLens
(grouplens-info@umn.edu). The README in the archive has the full terms.
Cite: F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context.
ACM Transactions on Interactive Intelligent Systems 5, 4: 19:1-19:19. https://doi.org/10.1145/2827872"""


@dataclass(frozen=True, slots=True)
class Archive:
    """One of the publisher's files."""

    md5: str  # as the publisher has it in a file beside the archive
    folder: str  # the directory inside the archive


ARCHIVES = {
    "ml-100k": Archive("0e33842e24a9c977be4e0107933c0723", "ml-100k"),
    "ml-1m": Archive("c4d9eecfca2ab87c1945afe126590906", "ml-1m"),
    "ml-10m": Archive("ce571fd55effeba0271552578f2648bd", "ml-10M100K"),
    "ml-25m": Archive("6b51fb2759a8657d3bfcbfc42b592ada", "ml-25m"),
}

Report = Callable[[int, int | None], None]  # bytes so far, and of how many


def archive_named(name: str) -> Archive:
    """Return the archive of a name, or refuse the name."""
    if name not in ARCHIVES:
        raise DatasetError(f"no set {name!r}; there are {', '.join(ARCHIVES)}")
    return ARCHIVES[name]


def fetch(
    name: str, folder: Path, *, source: str | None = None, md5: str | None = None, progress: Report | None = None
) -> Path:
    """Bring a set into a directory of its name below `folder`, and return it. What is there already stays."""
    archive, target = archive_named(name), folder / name
    if target.exists():
        raise DatasetError(f"{target} is there already; remove it to fetch the set anew")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as unfinished:
        path = Path(unfinished) / f"{name}.zip"
        found = _download(source or f"{PUBLISHER}/{name}.zip", path, progress or (lambda _done, _total: None))
        if found != (md5 or archive.md5):
            raise DatasetError("what was downloaded does not have the published checksum; try again, or another --from")
        _unpack(path, Path(unfinished) / "unpacked", archive.folder).replace(target)
    return target


def _download(source: str, path: Path, progress: Report) -> str:
    """Store what an address sends and return its MD5, which is what the publisher gives."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        with (
            httpx.stream("GET", source, timeout=_SILENT_SECONDS, follow_redirects=True) as answer,
            path.open("wb") as file,
        ):
            answer.raise_for_status()
            length = answer.headers.get("content-length", "")
            total = int(length) if length.isdigit() else None
            for chunk in answer.iter_bytes(_CHUNK):
                done += len(chunk)
                if done > _LARGEST:
                    raise DatasetError("the archive is larger than any that is known; look at --from")
                digest.update(chunk)
                file.write(chunk)
                progress(done, total)
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise DatasetError(f"{source} answers {status}; look at --from, or download by hand and use --path") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        kind = type(error).__name__
        raise DatasetError(f"{source} cannot be reached ({kind}); download by hand and use --path") from None
    return digest.hexdigest()


def _unpack(path: Path, folder: Path, wanted: str) -> Path:
    """Unpack the files of one directory, flat: no name in an archive decides where something goes."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = PurePosixPath(member.filename)
                if member.is_dir() or name.parts[:-1] != (wanted,):
                    continue
                with archive.open(member) as source, (folder / name.name).open("wb") as target:
                    shutil.copyfileobj(source, target, _CHUNK)
    except zipfile.BadZipFile:
        raise DatasetError("what was downloaded is no archive; try again, or another --from") from None
    if not any(folder.iterdir()):
        raise DatasetError(f"the archive has no directory {wanted}; try again, or another --from")
    return folder


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
