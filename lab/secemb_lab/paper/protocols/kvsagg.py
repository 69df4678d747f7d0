"""Kvsagg (Wu et al. 2023): users hash their items into an invertible Bloom lookup table, and SecAgg sums the tables.

A cell holds the number of users that inserted something, the sum of their items, the sum of a check of each item, and
the sum of the rows. In the sum, a cell with a single item can be read: all its users together, and the item's whole
row. Removing it from its other cells frees others. Decoding fails if it ends early because some items share all their
cells with others. Whoever reads the table learns how many users each item has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp

import numpy as np

from secemb_lab.paper.protocols import secagg
from secemb_lab.paper.protocols.secagg import SecAggRound
from secemb_shared.dpf import RingArray
from secemb_shared.randomness import Indices

PARTS = 3  # of the table; an item has a cell in each
HEAD = 3  # numbers of a cell before the row: count, items, checks
EXPANSION = 1.35  # cells for each item: above 1.222, below which peeling stops immediately, with a margin
_MIX = 0x9E3779B97F4A7C15
_FOLD = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Read:
    """The data that the server reads from a summed table."""

    rows: dict[int, RingArray]  # by item: the sum of its rows
    users: dict[int, int]  # by item: how many users it has
    left: int  # cells that could not be read

    @property
    def failed(self) -> bool:
        """Tell whether anything could not be read."""
        return self.left > 0


@dataclass(frozen=True, slots=True)
class KvsaggRound:
    """The result of a round."""

    read: Read
    summed: SecAggRound


def part_of(items: int, expansion: float = EXPANSION) -> int:
    """Return the cells of each part of a table for a union of this many items."""
    return max(2, -(-round(expansion * items) // PARTS))


def failure_rate(items: int, part: int) -> float:
    """Return the probability that a table of this size cannot be read, for tables much larger than their items.

    Reading stops at a set of items that share all their cells. The smallest such sets have two items, with three
    equal cells, or four, which fall in pairs in each part (not the same pairs in all); larger sets are rarer than both.
    """
    two = comb(items, 2) / part**PARTS
    paired = 3 * part * (part - 1) / part**4
    four = comb(items, 4) * (paired + part**-3) ** PARTS * (1 - 1 / 9)
    return 1 - exp(-two - four)


def cells_of(items: Indices, *, part: int, salt: int) -> Indices:
    """Return the cells of each item: (items, parts)."""
    places = [_mixed(items, salt * 8 + number) % np.uint64(part) + np.uint64(number * part) for number in range(PARTS)]
    return np.stack(places, axis=1).astype(np.int64)


def encode(items: Indices, rows: RingArray, *, part: int, salt: int) -> RingArray:
    """Return a user's table as one vector of the ring."""
    table: RingArray = np.zeros((PARTS * part, HEAD + rows.shape[1]), np.uint32)
    checks = _mixed(items, salt * 8 + 7).astype(np.uint32)
    content = np.column_stack([np.ones(items.size, np.uint32), items.astype(np.uint32), checks, rows])
    for places in cells_of(items, part=part, salt=salt).T:
        np.add.at(table, places, content)
    return table.reshape(-1)


def read(vector: RingArray, *, part: int, salt: int, width: int) -> Read:
    """Decode a summed table, cell by cell, as long as there is one with a single item."""
    table = vector.reshape(PARTS * part, HEAD + width).copy()
    rows: dict[int, RingArray] = {}
    users: dict[int, int] = {}
    waiting = list(range(len(table)))
    while waiting:
        cell = table[waiting.pop()]
        count, total = int(cell[0]), int(cell[1])
        if count == 0 or total % count:
            continue
        item = np.array([total // count])
        if (int(_mixed(item, salt * 8 + 7).astype(np.uint32)[0]) * count - int(cell[2])) % 2**32:
            continue
        content = cell.copy()
        rows[int(item[0])], users[int(item[0])] = content[HEAD:], count
        places = cells_of(item, part=part, salt=salt)[0]
        table[places] -= content
        waiting += places.tolist()
    return Read(rows, users, int((table[:, 0] != 0).sum()))


def run(items: Sequence[Indices], rows: Sequence[RingArray], *, part: int, salt: int, threshold: int) -> KvsaggRound:
    """Run a round: mask and sum the tables, and read the sum."""
    tables = {
        user: encode(some, own, part=part, salt=salt)
        for user, (some, own) in enumerate(zip(items, rows, strict=True), start=1)
    }
    summed = secagg.run(tables, threshold=threshold)
    return KvsaggRound(read(summed.total, part=part, salt=salt, width=rows[0].shape[1]), summed)


def _mixed(items: Indices, salt: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]":
    """Return 64 bits for each item (the finaliser of SplitMix64): hashing here needs no secrecy."""
    mixed = items.astype(np.uint64) + np.uint64((salt + 1) * _MIX % 2**64)
    for number, factor in enumerate(_FOLD):
        mixed = (mixed ^ (mixed >> np.uint64(30 - 3 * number))) * factor
    return mixed ^ (mixed >> np.uint64(31))
