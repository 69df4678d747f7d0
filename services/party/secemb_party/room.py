"""Space for device messages and model versions, on the disk and in memory."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from secemb_party.errors import BusyError, StorageFullError

_FRESH_SECONDS = 1.0  # every join request needs this
MEMORY = 64 << 20  # bytes
VERSIONS = 50  # newest versions of the model to keep, disk space permitting


class Space:
    """The free space of a server, and whether it is enough for new sessions."""

    def __init__(self, folder: Path, *, reserve: int, ledger_full: Callable[[], bool]) -> None:
        self._folder, self.reserve, self._ledger_full = folder, reserve, ledger_full
        self._free, self._asked = 0, float("-inf")

    def free(self) -> int:
        """Return the free bytes on the disk with the server's data, as of the last second."""
        now = time.monotonic()
        if now - self._asked >= _FRESH_SECONDS:
            self._free, self._asked = shutil.disk_usage(self._folder).free, now
        return self._free

    def shortage(self) -> str | None:
        """Return what is wrong and how to fix it, or None if there is enough space."""
        if self._ledger_full():
            return "the disk of the ledger's database is full; free up space, and the server will recover automatically"
        if self.reserve and (free := self.free()) < self.reserve:
            return (
                f"data_dir has {free / 1000000.0:,.0f} MB free, less than the reserve of"
                f" {self.reserve / 1000000.0:,.0f} MB ([storage] min_free_bytes); free up space, and the server will"
                " recover automatically"
            )
        return None

    def require(self) -> None:
        """Raise `StorageFullError` unless there is space for new sessions."""
        if self.shortage() is not None:
            raise StorageFullError("the disk is nearly full; try again after the time in Retry-After")


class Memory:
    """The bytes of devices' messages in memory, counted from their arrival until their request is answered.

    Bytes that have not arrived do not count, so requests that send no body cannot block others.
    """

    def __init__(self, most: int = MEMORY) -> None:
        self.most, self.held = most, 0

    @property
    def load(self) -> float:
        """Return the fraction in use, at most 1."""
        return min(1.0, self.held / self.most)

    @contextmanager
    def message(self) -> Iterator[Callable[[int], None]]:
        """Yield a counter for a message's bytes as they arrive; raise `BusyError` at once if memory is full."""
        if self.held >= self.most:
            raise BusyError(1)
        mine = 0

        def arrived(count: int) -> None:
            nonlocal mine
            mine, self.held = mine + count, self.held + count

        try:
            yield arrived
        finally:
            self.held -= mine
