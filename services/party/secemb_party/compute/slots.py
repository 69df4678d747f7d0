"""Ranges of slots: a round's keys, answers, updates and sums can all be cut by slot.

Whoever computes a range needs the rows of its bins only, `tables / workers` of the item table, and keeps them in the
order of its bins, so that reading streams through memory. The results are the same bits as those of the whole round:
answers and slot sums are put side by side, fingerprints are XOR-ed, and the sums of the rows are added.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from secemb_shared import row_access
from secemb_shared.dpf import Backend, Blocks, HeldKeys, LeafTable, RingArray, SlotChecks, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.layout import Geometry
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices
from secemb_shared.row_words import Rows

_GROUP = 4  # adjacent slots that the kernel evaluates side by side
_ORDER_BYTES = 12  # for a row: its item and its place
_ROWS_AT_ONCE = 1 << 16  # gathered in one step, to bound temporary memory


@dataclass(frozen=True, slots=True)
class SlotRange:
    """The slots `first` to `last` of a round: whole bins, or some slots of a bin that all slots share."""

    first: int
    last: int

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return self.last - self.first

    def keys(self, held: HeldKeys) -> HeldKeys:
        """Return the part of these keys."""
        some = slice(self.first, self.last)
        arrays = held.roots[:, some], held.left[:, :, some], held.right[:, :, some]
        return HeldKeys(held.party, held.keys, *map(np.ascontiguousarray, arrays))

    def checks(self, checks: SlotChecks) -> SlotChecks:
        """Return the part of these checks."""
        corrections = np.ascontiguousarray(checks.corrections[:, self.first : self.last])
        return SlotChecks(checks.leaf_keys, corrections, checks.first_slot + self.first)

    def words(self, words: RingArray) -> RingArray:
        """Return the part of these correction words."""
        return np.ascontiguousarray(words[:, self.first : self.last])


def slot_ranges(geometry: Geometry, workers: int) -> list[SlotRange]:
    """Cut all slots into at most this many ranges of nearly the same size."""
    unit = geometry.slots_per_bin if geometry.tables * geometry.bins > 1 else 1
    units = geometry.slots // unit
    step = _GROUP if units >= 2 * _GROUP * workers and unit == 1 else 1
    size = -(-units // (workers * step)) * step
    return [SlotRange(at * unit, min(at + size, units) * unit) for at in range(0, units, size)]


def worker_bytes(task: TaskSpec, workers: int) -> int:
    """Return about how much memory a worker needs: its rows in two rounds, and their sums twice while it removes."""
    rows = max(one.slots for one in slot_ranges(task.geometry, workers)) * task.geometry.leaves
    in_bins = rows // task.geometry.slots_per_bin if task.geometry.tables * task.geometry.bins > 1 else task.items
    of_a_round = 4 * (task.row_width + 1) + _ORDER_BYTES
    return in_bins * (2 * of_a_round + 2 * task.row_width * task.ring.dtype.itemsize)


class SlotTable:
    """The rows of one range of slots, and the evaluation of its keys and updates."""

    def __init__(self, round_: RoundSpec, slots: SlotRange, rows: Rows, backend: Backend | None = None) -> None:
        self.round, self.slots, self._backend = round_, slots, backend or default_backend()
        geometry = round_.task.geometry
        per_bin = geometry.slots_per_bin
        first, last = slots.first // per_bin, -(-slots.last // per_bin)
        order = round_.layout.order_of(first, last)
        self.items: Indices = order.reshape(-1).astype(np.int64)  # by row of this range; -1 past the end of a bin
        here = np.arange(order.size, dtype=np.int32).reshape(order.shape)
        # The bins of the range are a table of their own, in which each leaf has a row.
        shape = Geometry(items=order.size, tables=1, bins=last - first, slots_per_bin=slots.slots // (last - first))
        self._table = LeafTable(shape, np.where(order < 0, order, here))
        self._tagged = self._gather(rows)

    @property
    def bytes(self) -> int:
        """Return the memory of the rows and of the order."""
        return self._tagged.nbytes + self.items.nbytes + self._table.order.nbytes

    def _gather(self, rows: Rows) -> Words32:
        tagged = np.zeros((self.items.size, self.round.task.row_words + 1), dtype=np.uint32)
        for start in range(0, self.items.size, _ROWS_AT_ONCE):
            some = np.maximum(self.items[start : start + _ROWS_AT_ONCE], 0)  # no leaf leads to the row of a -1
            tagged[start : start + some.size] = row_access.tag_some(self.round, rows[some], some, self._backend)
        return tagged

    def answer(self, held: HeldKeys) -> Words32:
        """Return the shares of the requested rows: (sessions, slots of the range, row words + 1)."""
        return self._backend.answer(held, self._table, self._tagged)

    def answer_checked(self, held: HeldKeys, checks: SlotChecks, keys: Blocks) -> tuple[Words32, Blocks]:
        """Return the same, and this range's part of each session's fingerprint."""
        return self._backend.answer_checked(held, self._table, self._tagged, checks, keys)

    def empty_sums(self) -> RingArray:
        """Return sums over no sessions, with the rows in the order of the range."""
        task = self.round.task
        return np.zeros((self.items.size, task.row_width), dtype=task.ring.dtype)

    def add(self, held: HeldKeys, words: RingArray, sums: RingArray, *, slot_sums: bool) -> RingArray | None:
        """Add these sessions to the sums in place; return what each slot has added if that is wanted."""
        wanted = np.empty_like(words) if slot_sums else None
        self._backend.accumulate(held, self._table, words, sums, wanted)
        return wanted

    def cuts(self, rows: int) -> list[tuple[int, int]]:
        """Return pieces of the sums of about so many rows at most; within a table, each item has one row."""
        geometry = self.round.task.geometry
        begin = self.slots.first // geometry.slots_per_bin * geometry.leaves
        tables = (at - begin for at in range(0, begin + self.items.size, geometry.bins * geometry.leaves))
        cuts = sorted({*range(0, self.items.size, rows), *(at for at in tables if at > 0), self.items.size})
        return list(pairwise(cuts))

    def piece(self, sums: RingArray, first: int, last: int) -> tuple[Indices, RingArray]:
        """Return the items of a piece, each once, and their sums."""
        present = self.items[first:last] >= 0
        return self.items[first:last][present], sums[first:last][present]


def add_piece(total: RingArray, items: Indices, sums: RingArray) -> None:
    """Add a piece of a range's sums to the sums of all rows in place."""
    total[items] += sums
