"""Stored bytes that are read in pieces, however many there are: a share, a model on its way, a copy of a table."""

import hashlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

PIECE = 8 << 20  # bytes that are read, hashed or sent together


class Blob(Protocol):
    """Bytes that do not change. Any number of threads may read them at the same time."""

    @property
    def size(self) -> int:
        """Return how many bytes there are."""

    def read(self, first: int, count: int) -> bytes:
        """Return bytes from any position; fewer only at the end."""


class FileBlob:
    """A part of an open file. It can be read even after the file has been removed or replaced."""

    def __init__(self, descriptor: int, *, size: int, start: int = 0) -> None:
        self.size = size
        self._descriptor, self._start = descriptor, start
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, *, start: int = 0) -> Self:
        """Return a file's bytes from `start` on."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return cls(descriptor, size=os.fstat(descriptor).st_size - start, start=start)

    def read(self, first: int, count: int) -> bytes:
        """Return bytes from any position."""
        wanted, found = min(count, self.size - first), bytearray()
        while len(found) < wanted:  # a system call returns at most 2 GiB
            piece = os.pread(self._descriptor, wanted - len(found), self._start + first + len(found))
            if not piece:
                break
            if len(piece) == wanted:
                return piece
            found += piece
        return bytes(found)


class MemoryBlob:
    """Bytes in memory."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.size = self._data.nbytes

    def read(self, first: int, count: int) -> bytes:
        """Return bytes from any position."""
        return bytes(self._data[first : first + count])


def pieces(blob: Blob, first: int = 0) -> Iterator[bytes]:
    """Yield the bytes from `first` on, piece by piece."""
    for start in range(first, blob.size, PIECE):
        yield blob.read(start, PIECE)


def read_all(blob: Blob) -> bytes:
    """Return all bytes, which must fit in memory."""
    return b"".join(pieces(blob))


def sha256_of(blob: Blob) -> bytes:
    """Return the SHA-256 of all bytes."""
    hashed = hashlib.sha256()
    for piece in pieces(blob):
        hashed.update(piece)
    return hashed.digest()
