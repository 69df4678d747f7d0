"""A large body that arrives from the other server in pieces. After a cut or a crash it goes on where it ended."""

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path

from secemb_party.errors import PeerRefusedError, StorageUnavailableError
from secemb_party.storage.blob import FileBlob
from secemb_party.storage.files import PRIVATE, make_folder

PIECE_DIGEST = "secemb-piece-sha256"  # the header with the SHA-256 of a piece


def incoming_folder(scratch: Path, task_id: bytes) -> Path:
    """Return where a task's incoming body is: tasks receive theirs independently."""
    return scratch / "incoming" / task_id.hex()


class Incoming:
    """A folder for one incoming body at a time. Its bytes can be sent again, so it does not wait for the disk."""

    def __init__(self, scratch: Path, task_id: bytes) -> None:
        self._folder = incoming_folder(scratch, task_id)
        self._writing = threading.Lock()

    def received(self, name: str) -> int:
        """Return how many bytes of a body have arrived."""
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, name: str, first: int, piece: bytes, digest: str) -> int:
        """Add a piece; return how many bytes have arrived. A piece that is not the next one changes nothing."""
        if hashlib.sha256(piece).hexdigest() != digest:
            raise PeerRefusedError("a piece was damaged in transit")
        with self._writing:  # a piece may arrive twice at the same time
            there = self.received(name)
            if first != there:
                return there
            try:
                self._append(name, first, piece)
            except OSError as error:
                raise StorageUnavailableError(f"cannot write a file: {error.strerror or error}") from error
            return first + len(piece)

    def _append(self, name: str, first: int, piece: bytes) -> None:
        if first == 0:
            self.clear()
            make_folder(self._folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / name, flags, PRIVATE), "ab") as file:
            file.write(piece)

    def open(self, name: str) -> FileBlob:
        """Return the bytes that have arrived."""
        return FileBlob.open(self._folder / name)

    def path(self, name: str) -> Path:
        """Return where the bytes are."""
        return self._folder / name

    def clear(self) -> None:
        """Remove what has arrived."""
        with suppress(FileNotFoundError):
            for leftover in self._folder.iterdir():
                leftover.unlink(missing_ok=True)
