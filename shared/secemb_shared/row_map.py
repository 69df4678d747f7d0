"""Where each row of a successor task comes from: a kept row of the predecessor, or a new row and how it starts.

    rows of the predecessor  4   little-endian, like every number
    rows of the successor    4
    runs, each
        kind                 1   0 kept, 1 seeded, 2 mean, 3 zero
        length               4
        first                4   of a kept run: the predecessor's row of its first row; otherwise 0

The rows of a kept run follow each other in both tasks. Runs are as long as possible, so a map has a single encoding,
and its SHA-256 names it. A row of the predecessor that no run keeps is retired.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from secemb_shared.catalogue import Catalogue
from secemb_shared.errors import EncodingError, LengthError, RowMapError
from secemb_shared.randomness import Indices

SEEDED, MEAN, ZERO = "seeded", "mean", "zero"  # how new rows start: as in a first task, as the mean of kept rows, zero
STARTS = (SEEDED, MEAN, ZERO)
GONE = -1  # where a retired row is now
_RUN = np.dtype([("kind", "u1"), ("length", "<u4"), ("first", "<u4")])
_HEAD_BYTES, _KEPT = 8, 0
_LARGEST = 2**31  # rows of a task


@dataclass(frozen=True, slots=True, eq=False)
class RowMap:
    """The origin of every row of a successor."""

    before: int  # number of rows of the predecessor
    sources: Indices  # (rows,): the predecessor's row, or −1, −2 or −3 for a new row: a start in the order of STARTS

    def __post_init__(self) -> None:
        kept = self.sources[self.sources >= 0]
        fits = self.sources.min(initial=0) >= -len(STARTS) and kept.max(initial=0) < self.before
        if not fits or not 0 < self.before < _LARGEST or not 0 < self.sources.size < _LARGEST:
            raise RowMapError("a row map must name rows of the predecessor, or say how a new row starts")
        if np.bincount(kept, minlength=1).max(initial=0) > 1:
            raise RowMapError("a row map must not keep a row twice")

    def __len__(self) -> int:
        """Return the number of rows of the successor."""
        return self.sources.size

    @property
    def kept(self) -> Indices:
        """Return the rows of the successor that were kept."""
        return np.flatnonzero(self.sources >= 0)

    def new(self, start: str) -> Indices:
        """Return the new rows that start in this way."""
        return np.flatnonzero(self.sources == -1 - STARTS.index(start))

    @property
    def retired(self) -> int:
        """Return how many rows of the predecessor are not kept."""
        return self.before - self.kept.size

    def follow(self) -> Indices:
        """Return where each row of the predecessor is now, `GONE` if it is retired; shape (before,)."""
        places = np.full(self.before, GONE, dtype=np.int64)
        kept = self.kept
        places[self.sources[kept]] = kept
        return places

    def encode(self) -> bytes:
        """Return the file."""
        sources = self.sources
        follows = np.where(sources[1:] >= 0, sources[1:] == sources[:-1] + 1, sources[1:] == sources[:-1])
        # A new row −1 is not followed by the kept row 0, although their numbers are.
        follows &= (sources[1:] >= 0) == (sources[:-1] >= 0)
        starts = np.concatenate([[0], 1 + np.flatnonzero(~follows)])
        runs = np.zeros(starts.size, dtype=_RUN)
        runs["kind"] = np.maximum(0, -sources[starts])
        runs["length"] = np.diff(np.concatenate([starts, [sources.size]]))
        runs["first"] = np.maximum(0, sources[starts])
        head = np.array([self.before, sources.size], dtype="<u4")
        return head.tobytes() + runs.tobytes()

    @classmethod
    def decode(cls, data: bytes, *, before: int, rows: int) -> Self:
        """Read the map between two tasks with this many rows; only its single encoding is accepted."""
        body = len(data) - _HEAD_BYTES
        if body <= 0 or body % _RUN.itemsize or body // _RUN.itemsize > rows:
            raise LengthError("a row map must have a head and whole runs, at most one for each row")
        head, runs = np.frombuffer(data[:_HEAD_BYTES], "<u4"), np.frombuffer(data[_HEAD_BYTES:], _RUN)
        lengths, firsts = runs["length"].astype(np.int64), runs["first"].astype(np.int64)
        if head.tolist() != [before, rows] or lengths.sum() != rows or runs["kind"].max() > len(STARTS):
            raise RowMapError("this row map is not the one between these two tasks")
        steps = np.arange(rows) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kinds = np.repeat(runs["kind"].astype(np.int64), lengths)
        found = cls(before, np.where(kinds == _KEPT, np.repeat(firsts, lengths) + steps, -kinds))
        if found.encode() != data:
            raise EncodingError("a row map must have the longest runs, and nothing after them")
        return found

    @property
    def digest(self) -> bytes:
        """Return the 32 bytes that name the map."""
        return hashlib.sha256(self.encode()).digest()


def map_rows(old: Catalogue, new: Catalogue, *, before: int, rows: int, start: str) -> RowMap:
    """Return the map between the catalogues of two tasks with this many rows: ids in both are kept, others are new.

    Without ids, a row is the same item in both tasks.
    """
    if start not in STARTS:
        raise RowMapError(f"new rows must start as one of {', '.join(STARTS)}")
    if bool(len(old)) != bool(len(new)) or (len(old) and (len(old), len(new)) != (before, rows)):
        raise RowMapError("both tasks must have a catalogue of all their items, or neither; without ids rows stay")
    fresh = -1 - STARTS.index(start)
    if not len(old):
        numbers = np.arange(rows)
        return RowMap(before, np.where(numbers < before, numbers, fresh))
    known = {name: row for row, name in enumerate(old.ids)}
    return RowMap(before, np.fromiter(_sources(new, known, fresh), dtype=np.int64, count=rows))


def _sources(new: Catalogue, known: dict[str, int], fresh: int) -> Iterator[int]:
    return (known.get(name, fresh) for name in new.ids)
