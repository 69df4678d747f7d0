"""Objects: whole byte strings under names, in a local folder or in an S3-compatible bucket.

A name is a path of a few parts, such as `bodies/<round>/<session>`. An object exists completely or not at all, and is
durable once a call has returned. Nothing may depend on a listing for correctness: it may lack new objects for a while.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from secemb_party.errors import StorageUnavailableError
from secemb_party.storage import files
from secemb_party.storage.blob import FileBlob

Data = bytes | memoryview | Path  # a path stands for the content of its file


class Objects(Protocol):
    """Objects under names. The methods block and are called in worker threads."""

    def create(self, name: str, data: Data) -> bool:
        """Store an object unless there is one of this name; return whether this call stored it.

        False may also mean that an earlier attempt of this call stored it, but its answer was lost.
        """

    def replace(self, name: str, data: Data) -> None:
        """Store an object in place of any earlier one."""

    def read(self, name: str) -> bytes | None:
        """Return an object, or None if there is none."""

    def read_part(self, name: str, first: int, count: int) -> bytes:
        """Return bytes of an object that exists, from any position; fewer only at its end."""

    def size(self, name: str) -> int | None:
        """Return how many bytes an object has, or None if there is none."""

    def stamp(self, name: str) -> str | None:
        """Return a text that changes whenever the object does, or None if there is no object."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects below a folder, sorted; new ones may be missing for a while."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder, sorted; new ones may be missing for a while."""

    def remove(self, names: Collection[str]) -> None:
        """Remove objects; those that do not exist are ignored."""

    def check(self) -> None:
        """Raise StorageUnavailableError, with the reason and the fix, unless objects can be stored and read here."""


class FolderObjects:
    """Objects as files in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str, data: Data) -> bool:
        """Write a file unless it exists."""
        path = self._prepared(name)
        return files.write_new(path, _content(data), mode=files.PRIVATE)

    def replace(self, name: str, data: Data) -> None:
        """Write a file, replacing any earlier one."""
        files.write_file(self._prepared(name), _content(data), mode=files.PRIVATE)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageUnavailableError(f"cannot read a file: {error.strerror or error}") from error

    def read_part(self, name: str, first: int, count: int) -> bytes:
        """Return bytes of a file."""
        try:
            return FileBlob.open(self._folder / name).read(first, count)
        except OSError as error:
            raise StorageUnavailableError(f"cannot read a file: {error.strerror or error}") from error

    def size(self, name: str) -> int | None:
        """Return the size of a file, or None."""
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return None

    def stamp(self, name: str) -> str | None:
        """Return the identity of a file: each write makes a new one."""
        try:
            found = (self._folder / name).stat()
        except FileNotFoundError:
            return None
        return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the files below a folder."""
        found = (path for path in (self._folder / folder).rglob("*") if not path.name.startswith("."))
        return sorted(path.relative_to(self._folder).as_posix() for path in found if path.is_file())

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder."""
        return sorted(path.name for path in (self._folder / folder).glob("*") if path.is_dir())

    def remove(self, names: Collection[str]) -> None:
        """Remove files, and folders that are empty afterwards."""
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        for folder in {(self._folder / name).parent for name in names} - {self._folder}:
            files.remove_unfinished(folder)
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def check(self) -> None:
        """Raise unless the folder can be written."""
        folder = next(one for one in (self._folder, *self._folder.parents) if one.exists())
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageUnavailableError(f"cannot write to {folder}; make it writable by the user of the service")

    def _prepared(self, name: str) -> Path:
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.sync_folder(path.parent.parent)
        except OSError as error:
            raise StorageUnavailableError(f"cannot make a folder: {error.strerror or error}") from error
        return path


class ObjectBlob:
    """An object that is read in pieces and never held in memory as a whole."""

    def __init__(self, objects: Objects, name: str, size: int) -> None:
        self._objects, self._name, self.size = objects, name, size

    def read(self, first: int, count: int) -> bytes:
        """Return bytes from any position; fewer only at the end."""
        wanted = min(count, self.size - first)
        return self._objects.read_part(self._name, first, wanted) if wanted > 0 else b""


def _content(data: Data) -> bytes | memoryview:
    return data.read_bytes() if isinstance(data, Path) else data
