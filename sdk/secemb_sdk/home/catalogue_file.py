"""A device's copy of its task's catalogue: a file that is downloaded in pieces and verified."""

import os
from collections.abc import Collection
from pathlib import Path

from secemb_sdk.errors import CopyError
from secemb_sdk.home.files import file_digest, make_folder, remove_file
from secemb_shared.catalogue import FILE, Catalogue, read_entries
from secemb_shared.errors import CatalogueError
from secemb_shared.messages import TaskSpec

_UNFINISHED = "catalogue.part"
FOREIGN = "the catalogue from server 0 does not match the task's digest; tell its operator, or pass titles=False"


class CatalogueFile:
    """One device's copy of its task's catalogue. It is public, and reveals nothing about its owner."""

    def __init__(self, folder: Path, task: TaskSpec) -> None:
        self.task, self._folder = task, folder
        self._path, self._part = folder / FILE, folder / _UNFINISHED

    def is_here(self) -> bool:
        """Tell whether the file exists and is intact."""
        return self._path.is_file() and file_digest(self._path) == self.task.catalogue

    def size_of_part(self) -> int:
        """Return how many bytes have been downloaded so far."""
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
        """Put the complete download into use; raise if it is not the task's catalogue, or not a catalogue."""
        if file_digest(self._part) != self.task.catalogue:
            raise CopyError(FOREIGN)
        try:
            with self._part.open(encoding="utf-8", newline="") as lines:
                rows = sum(1 for _ in read_entries(lines)) - 1
        except CatalogueError:
            rows = -1
        if rows != self.task.items:
            raise CopyError(
                "the task's catalogue does not list its items; ask the operators to create the task with "
                "`secemb task create --catalogue`, or pass titles=False"
            )
        os.replace(self._part, self._path)

    def load(self) -> Catalogue:
        """Return the whole catalogue."""
        with self._path.open(encoding="utf-8", newline="") as lines:
            return Catalogue.read(lines)

    def names(self, rows: Collection[int]) -> dict[int, tuple[str, str | None]]:
        """Return ids and titles of some rows, in constant memory."""
        with self._path.open(encoding="utf-8", newline="") as lines:
            entries = enumerate(read_entries(lines), start=-1)  # the first line is the header
            return {row: (entry[1], entry[2] or None) for row, entry in entries if row in rows}
