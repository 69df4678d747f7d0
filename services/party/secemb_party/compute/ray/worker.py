"""One worker of the engine on Ray: the rows and the sums of one range of slots.

It does not know Ray. Everything that it holds is a function of the model and of bodies that the server has stored, so
it may be lost at any time. What it was told before may then be missing, and it says so.
"""

import os
import platform
from collections import OrderedDict
from importlib.metadata import version
from time import thread_time

import numpy as np

from secemb_party.compute.errors import MissingError
from secemb_party.compute.slots import SlotRange, SlotTable
from secemb_shared.dpf import Blocks, HeldKeys, RingArray, SlotChecks
from secemb_shared.dpf.backend import Words32
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices
from secemb_shared.row_words import Rows

_ROUNDS = 3  # the open round, the one before it, and one that is being prepared
_PIECE_BYTES = 1 << 25  # of sums, returned in one call


class PreparedTable:
    """A round that a worker has prepared, and the sums of it that were started."""

    def __init__(self, table: SlotTable) -> None:
        self.table = table
        self.sums: dict[str, RingArray] = {}


class Worker:
    """The computations of one range of slots."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[str, PreparedTable] = OrderedDict()

    def versions(self) -> tuple[str, str]:
        """Return the versions of the software and of Python."""
        return version("secemb"), platform.python_version()

    def process(self) -> int:
        """Return the process that this worker is."""
        return os.getpid()

    def prepare(self, name: str, task: bytes, spec: bytes, slots: SlotRange, rows: Rows) -> None:
        """Gather the rows of a range of slots for a round."""
        round_ = RoundSpec.decode(spec, TaskSpec.decode(task))
        self._rounds[name] = PreparedTable(SlotTable(round_, slots, rows))
        while len(self._rounds) > _ROUNDS:
            self._rounds.popitem(last=False)

    def forget(self, name: str) -> None:
        """Drop a round and its sums."""
        self._rounds.pop(name, None)

    def answer(self, name: str, held: HeldKeys) -> tuple[float, Words32]:
        """Return the seconds of the processor, and the shares of the requested rows."""
        start = thread_time()
        found = self._round(name).table.answer(held)
        return thread_time() - start, found

    def answer_checked(
        self, name: str, held: HeldKeys, checks: SlotChecks, keys: Blocks
    ) -> tuple[float, Words32, Blocks]:
        """Return the same, and this range's part of the fingerprints."""
        start = thread_time()
        words, prints = self._round(name).table.answer_checked(held, checks, keys)
        return thread_time() - start, words, prints

    def start_sum(self, name: str, sum_name: str) -> None:
        """Start a sum over no sessions."""
        held = self._round(name)
        held.sums[sum_name] = held.table.empty_sums()

    def add(
        self, name: str, sum_name: str, held: HeldKeys, words: RingArray, slot_sums: bool
    ) -> tuple[float, RingArray | None]:
        """Add sessions to a sum; return the seconds of the processor, and what each slot added if that is wanted."""
        start = thread_time()
        found = self._round(name).table.add(held, words, self._sum(name, sum_name), slot_sums=slot_sums)
        return thread_time() - start, found

    def remove(self, name: str, sum_name: str, held: HeldKeys, words: RingArray) -> tuple[float, None]:
        """Subtract sessions from a sum."""
        start, table, sums = thread_time(), self._round(name).table, self._sum(name, sum_name)
        removed = table.empty_sums()
        table.add(held, words, removed, slot_sums=False)
        np.subtract(sums, removed, out=sums)
        return thread_time() - start, None

    def cuts(self, name: str) -> list[tuple[int, int]]:
        """Return how the sums are cut into pieces; no piece has two rows of the same item."""
        table = self._round(name).table
        return table.cuts(max(1, _PIECE_BYTES // (table.round.task.row_width * table.round.task.ring.element_bytes)))

    def piece(self, name: str, sum_name: str, first: int, last: int) -> tuple[Indices, RingArray]:
        """Return the items of a piece, and their sums."""
        return self._round(name).table.piece(self._sum(name, sum_name), first, last)

    def end_sum(self, name: str, sum_name: str) -> None:
        """Drop a sum."""
        held = self._rounds.get(name)
        if held is not None:
            held.sums.pop(sum_name, None)

    def _round(self, name: str) -> PreparedTable:
        if name not in self._rounds:
            raise MissingError("this round is not prepared here")
        self._rounds.move_to_end(name)
        return self._rounds[name]

    def _sum(self, name: str, sum_name: str) -> RingArray:
        sums = self._round(name).sums
        if sum_name not in sums:
            raise MissingError("this sum was not started here")
        return sums[sum_name]
