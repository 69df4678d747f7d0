"""The home directory of one device: named records, in files that are replaced atomically."""

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secemb_sdk.errors import HomeError, HomeInUseError
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.records import Record

_UNFINISHED = ".new"
_BLOCK = 2**20


def write_file(path: Path, data: bytes) -> None:
    """Replace a file atomically; only its owner can read it."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)  # left behind by a killed process
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
    """Return a file's content, or None if there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    hashed = hashlib.sha256()
    for block in read_blocks(path):
        hashed.update(block)
    return hashed.hexdigest()


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def remove_file(path: Path) -> None:
    """Remove a file if it exists, and the unfinished next version that a killed process may have left."""
    removed = False
    for one in (path, path.with_name(path.name + _UNFINISHED)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one)
            removed = True
    if removed:
        _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, or restrict an existing one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def _sync_folder(folder: Path) -> None:
    """Make a new name durable: names are stored in the folder, not in the file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_LOCK = "lock"


class Home:
    """A folder that only one object has open: mode 0700, files 0600, each record replaced atomically."""

    def __init__(self, folder: Path | str, cipher: FileCipher) -> None:
        self.folder, self._cipher = Path(folder), cipher
        self.lock = threading.RLock()  # one change at a time: an app may log during a round
        self._hold: int | None = self._take()

    def __repr__(self) -> str:
        return f"<Home {'closed' if self._hold is None else 'open'}>"

    def read(self, name: str) -> Record | None:
        """Return a record, or None if there is none."""
        with self._held():
            data = read_file(self.folder / name)
        return None if data is None else Record.decode(self._cipher.decode(name, data))

    def write(self, name: str, record: Record) -> None:
        """Replace a record; it is durable on return."""
        data = self._cipher.encode(name, record.encode())
        with self._held():
            write_file(self.folder / name, data)

    def remove(self, name: str) -> None:
        """Remove a record; it is gone on return."""
        with self._held():
            remove_file(self.folder / name)

    def place(self, *, renew: bool = False) -> list[int]:
        """Return what distinguishes this home from a copy, and from itself before `renew`; no program can reset it."""
        with self._held():
            if renew:
                os.utime(self.folder / _LOCK)
            found = os.stat(self.folder / _LOCK)
            return [found.st_ino, found.st_ctime_ns]

    def close(self) -> None:
        """Release the home so that it can be reopened."""
        with self.lock:
            if self._hold is not None:
                os.close(self._hold)
                self._hold = None

    def _take(self) -> int:
        """Create the folder and acquire its lock, which the system releases when this process ends."""
        try:
            make_folder(self.folder)
            handle = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeError(
                f"cannot use the home directory: {error.strerror}; choose one that you can write to"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise HomeInUseError("another process or object has this home open; close it first") from None
        return handle

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Allow one thread at a time to access the files of an open home."""
        with self.lock:
            if self._hold is None:
                raise HomeError("the device is closed; open it again")
            try:
                yield
            except OSError as error:
                raise HomeError(
                    f"cannot read or write the home: {error.strerror}; check the disk and its free space"
                ) from error
