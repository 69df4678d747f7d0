"""A file to take away that has no name any more: it is gone as soon as nobody reads it, however that ends."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_PIECE = 1 << 16


class Download(StreamingResponse):
    """Sends an open file and closes it; whoever asks for a part of it gets the whole."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        headers = {
            "content-length": str(os.fstat(file.fileno()).st_size),
            "content-disposition": f'attachment; filename="{_plain(name)}"',
        }
        super().__init__(iter(lambda: file.read(_PIECE), b""), media_type="application/octet-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._file:
            await super().__call__(scope, receive, send)


def nameless(write: Callable[[Path], None]) -> BinaryIO:
    """Return what `write` writes under the name that it is given; the name is gone before this returns."""
    with tempfile.TemporaryDirectory(prefix="secemb-export-") as folder:
        path = Path(folder) / "file"
        write(path)
        return path.open("rb")


def _plain(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "download"
