"""Files that are either old or new, never in between, whenever the process or the machine dies."""

import contextlib
import os
from pathlib import Path

_UNFINISHED = ".new"


def write_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of what is there, readable by the owner alone."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)  # of a process that was killed
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(unfinished, path)
    _sync_folder(path.parent)


def read_file(path: Path) -> bytes | None:
    """Return what is there, or nothing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def remove_file(path: Path) -> None:
    """Remove a file if it is there, and what a killed process may have left of its next version."""
    removed = False
    for one in (path, path.with_name(path.name + _UNFINISHED)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one)
            removed = True
    if removed:
        _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, or shut one that is there to others."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def _sync_folder(folder: Path) -> None:
    """Make a new name durable: it is part of the folder, not of the file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
