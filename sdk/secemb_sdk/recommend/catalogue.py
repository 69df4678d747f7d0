"""The task's catalogue on a device: fetched once, as a whole, so that no server learns which titles are looked up."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.files import make_folder, remove_file
from secemb_sdk.recommend.copy import file_digest
from secemb_sdk.recommend.sync import CHUNK, PIECE_SECONDS, full_size
from secemb_sdk.round.join import find_task
from secemb_sdk.steps import Request, Steps, work
from secemb_shared.catalogue import FILE, LARGEST, Catalogue, read_entries
from secemb_shared.errors import CatalogueError
from secemb_shared.messages import TaskSpec

_UNFINISHED = "catalogue.part"
_FOREIGN = "server 0's catalogue is not the one that the task names; tell its operator, or pass titles=False"


class Recommendation(NamedTuple):
    """An item for the owner. Without a catalogue it has no id and no title."""

    item: int  # its row
    score: float
    id: str | None = None  # as the catalogue's author calls it
    title: str | None = None


class CatalogueFile:
    """One device's copy of its task's catalogue. It is public, and says nothing about its owner."""

    def __init__(self, folder: Path, task: TaskSpec) -> None:
        self.task, self._folder = task, folder
        self._path, self._part = folder / FILE, folder / _UNFINISHED

    def is_here(self) -> bool:
        """Tell whether the file is here and undamaged."""
        return self._path.is_file() and file_digest(self._path) == self.task.catalogue

    def size_of_part(self) -> int:
        """Return how many bytes of a download are here."""
        make_folder(self._folder)
        return self._part.stat().st_size if self._part.exists() else 0

    def append(self, data: bytes) -> None:
        """Add the next bytes of the download."""
        with self._part.open("ab") as file:
            file.write(data)
            os.fsync(file.fileno())

    def drop_part(self) -> None:
        """Remove the download."""
        remove_file(self._part)

    def install(self) -> None:
        """Use the complete download from now on; raise if it is not the task's catalogue, or not a catalogue."""
        if file_digest(self._part) != self.task.catalogue:
            raise CopyError(_FOREIGN)
        try:
            with self._part.open(encoding="utf-8", newline="") as lines:
                rows = sum(1 for _ in read_entries(lines)) - 1
        except CatalogueError:
            rows = -1
        if rows != self.task.items:
            raise CopyError(
                "the task's catalogue is not a list of its items; ask the operators for a task that "
                "`secemb task create --catalogue` made, or pass titles=False"
            )
        os.replace(self._part, self._path)

    def load(self) -> Catalogue:
        """Return the whole catalogue."""
        with self._path.open(encoding="utf-8", newline="") as lines:
            return Catalogue.read(lines)

    def name(self, scored: Iterable[tuple[int, float]]) -> list[Recommendation]:
        """Return items with their ids and titles; memory does not grow with the catalogue."""
        scored = list(scored)
        wanted = {item for item, _ in scored}
        with self._path.open(encoding="utf-8", newline="") as lines:
            entries = enumerate(read_entries(lines), start=-1)  # the first is the header
            names = {row: (entry[1], entry[2] or None) for row, entry in entries if row in wanted}
        return [Recommendation(item, score, *names[item]) for item, score in scored]


def name_items(
    exchange: Exchange, task: TaskSpec, scored: Iterable[tuple[int, float]], *, titles: bool
) -> Steps[list[Recommendation]]:
    """Return items with their ids and titles, if they are wanted and the task has a catalogue."""
    if not titles or not task.catalogue:
        return [Recommendation(item, score) for item, score in scored]
    file = CatalogueFile(exchange.context.vault.public_folder, task)
    yield from fetch_catalogue(exchange, file)
    return (yield from work(lambda: file.name(scored)))


def find_catalogue(context: Context) -> Steps[Catalogue]:
    """Return the task's catalogue; an empty one, in which rows are ids, if it has none."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(exchange))
    if not task.catalogue:
        return Catalogue()
    file = CatalogueFile(exchange.context.vault.public_folder, task)
    yield from fetch_catalogue(exchange, file)
    return (yield from work(file.load))


def fetch_catalogue(exchange: Exchange, file: CatalogueFile, *, chunk: int = CHUNK) -> Steps[None]:
    """Download the catalogue unless it is here; what was cut off continues where it stopped."""
    if (yield from work(file.is_here)):
        return
    try:
        yield from _download(exchange, file, chunk)
        yield from work(file.install)
    except (CopyError, RefusedError) as error:
        yield from work(file.drop_part)
        if isinstance(error, CopyError):
            raise
        raise CopyError(_FOREIGN) from error  # it is shorter than what this device has of it


def _download(exchange: Exchange, file: CatalogueFile, chunk: int) -> Steps[None]:
    have, size = (yield from work(file.size_of_part)), None
    while size is None or have < size:
        (answer,) = yield from exchange.ask(_piece_of(file.task, have, chunk))
        size = full_size(answer, have)
        if size > LARGEST or have + len(answer.body) > size:
            raise CopyError(_FOREIGN)
        yield from work(partial(file.append, answer.body))
        have += len(answer.body)


def _piece_of(task: TaskSpec, first: int, count: int) -> Request:
    path, headers = f"/v1/tasks/{task.task_id.hex()}/catalogue", {"range": f"bytes={first}-{first + count - 1}"}
    return Request(server=0, method="GET", path=path, headers=headers, most=max(count, CHUNK), seconds=PIECE_SECONDS)
