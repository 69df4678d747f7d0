"""A copy of the item table on this device: a file that is looked at in place, so that it need not fit into memory."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from secemb_sdk.models.interface import Floats
from secemb_sdk.ranking.errors import CopyError
from secemb_shared.errors import MessageError
from secemb_shared.messages.table import CopyShape, Encoded
from secemb_shared.randomness import Indices

_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCopy:
    """One version of the table, in a file. It is public: whoever finds it learns nothing about its owner."""

    path: Path = field(repr=False)
    shape: CopyShape
    version: int
    sha256: str

    def rows(self, items: Indices) -> Floats:
        """Return the rows of these items, shape (n, width)."""
        return self.shape.decode(self.encoded[items])

    @cached_property
    def encoded(self) -> Encoded:
        """Return the file's bytes by row, read from the disk as they are looked at."""
        return np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.shape.items, self.shape.row_bytes))


def apply_delta(older: Path, delta: Path, newer: Path, shape: CopyShape) -> None:
    """Write the copy that a delta leads to from an older one; neither is held in memory."""
    try:
        numbers, rows = shape.read_delta(np.memmap(delta, dtype=np.uint8, mode="r"))
    except MessageError:
        raise CopyError("what came is no delta of this table") from None
    with newer.open("wb") as file:
        for block in read_blocks(older):
            file.write(block)
    target = np.memmap(newer, dtype=np.uint8, mode="r+", shape=(shape.items, shape.row_bytes))
    target[numbers] = rows
    target.flush()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    hashed = hashlib.sha256()
    for block in read_blocks(path):
        hashed.update(block)
    return hashed.hexdigest()


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file, some of it at a time."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
