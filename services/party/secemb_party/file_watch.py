"""Values that are read from files and reloaded when they change: certificates, keys and token hashes.

An operator, or the program that renews certificates, replaces the files; no restart or signal is needed.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from secemb_party.logs import get_logger

LOOK_SECONDS = 1.0  # between two checks of the files

Value = TypeVar("Value")
Clock = Callable[[], float]
_Seen = tuple[tuple[int, int, int] | None, ...]


class FileWatch(Generic[Value]):
    """The result of `read`, called at first, when it may raise, and again whenever the files have changed.

    If the new files cannot be read, for example because only one of two has been replaced, the old value stays.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], Value], *, clock: Clock = time.monotonic) -> None:
        self._files, self._read, self._clock = files, read, clock
        self._seen, self._looked = self._look(), clock()
        self._value = read()

    def get(self) -> Value:
        """Return the value; the files were checked within the last second."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._read_again()
        return self._value

    def _read_again(self) -> None:
        names = " ".join(path.name for path in self._files)
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:  # errors of ssl are OSErrors
            get_logger().warning(
                "cannot reload changed files; still using the old ones", names=names, error=repr(error)
            )
        else:
            get_logger().info("reloaded changed files", names=names)

    def _look(self) -> _Seen:
        return tuple(_state(path) for path in self._files)


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
