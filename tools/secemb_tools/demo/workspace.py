"""Where a demonstration keeps its files while it runs: in memory if there is room, or where TMPDIR says."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 (what is made in it has a name that nobody can guess)
_ROOM = 1 << 29
PREFIX = "secemb-demo-"


@contextmanager
def workspace() -> Iterator[Path]:
    """Make a directory for the length of a demonstration."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path | None:
    if "TMPDIR" in os.environ or not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM else None
