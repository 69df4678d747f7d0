"""Files that exist completely or not at all, even if the process or the machine crashes."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from secemb_party.errors import StorageUnavailableError

_UNFINISHED = ".tmp"
_ASK_AGAIN_SECONDS = 0.01
_ABANDONED_SECONDS = 3600.0
PRIVATE = 0o600  # the mode of files that only the server's own user may read


def write_file(path: Path, data: bytes | memoryview, *, mode: int | None = None) -> None:
    """Write a file, replacing any earlier one, and return when it is on disk.

    After a crash or with a full disk, either the old file or the new one exists. With `mode`, the file never has other
    permissions, whatever the umask.
    """
    try:
        with whole_file(path, mode=mode) as file:
            file.write(data)
    except OSError as error:
        raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error


def write_new(path: Path, data: bytes | memoryview, *, mode: int | None = None) -> bool:
    """Write a file unless it exists, and return whether this call wrote it: of several processes, the first one does.

    After a crash the file exists completely or not at all.
    """
    unfinished = _unfinished(path)
    try:
        try:
            with _new_file(unfinished, mode) as file:
                file.write(data)
            os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error
    return True


@contextmanager
def whole_file(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces the old one, like `write_file`, if the block ends without an error."""
    unfinished = _unfinished(path)
    try:
        with _new_file(unfinished, mode) as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def _new_file(path: Path, mode: int | None) -> Iterator[BinaryIO]:
    """Open a new file, which is on disk once the block has ended."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else 0o600), "w+b") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        yield file
        file.flush()
        os.fsync(file.fileno())


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk; otherwise a crash may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder durably: a crash does not remove it again."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make other processes wait before changing a file. The lock is a file next to it, which is not deleted."""
    handle = _open_lock(path.with_suffix(".lock"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def lock_file(path: Path, *, patience: float) -> int:
    """Lock a file while it is open and return it; raise BlockingIOError if another process holds the lock."""
    file = _open_lock(path)
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(file)
                raise
            time.sleep(_ASK_AGAIN_SECONDS)
        else:
            return file


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed writers; one that was written to recently may have a living writer."""
    for leftover in folder.glob(f".*{_UNFINISHED}"):
        with suppress(FileNotFoundError):  # its writer has just finished
            if time.time() - leftover.stat().st_mtime > _ABANDONED_SECONDS:
                leftover.unlink(missing_ok=True)
