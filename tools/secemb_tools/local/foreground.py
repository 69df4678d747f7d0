"""A command that runs until it is done or until Ctrl-C: its temporary directory and its signals."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

_MEMORY = Path("/dev/shm")  # noqa: S108 (the directory made in it has an unguessable name)
_ROOM = 1 << 29

Result = TypeVar("Result")


async def stopped_by_signals(work: Coroutine[Any, Any, Result]) -> Result:
    """Let a signal cancel the work at its next wait; a second one does not interrupt the clean-up."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    return await task


@contextmanager
def workspace(prefix: str) -> Iterator[Path]:
    """Make a directory for the length of a command: in memory if there is room, or where TMPDIR says."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_memory()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> Path | None:
    if "TMPDIR" in os.environ or not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM else None
