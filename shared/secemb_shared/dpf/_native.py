"""The native backend: the C kernel behind the same interface, with optional worker threads.

This module arranges arrays and splits work; C checks sizes and alignment again.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf.backend import PROJECTIONS, LeafTable, Words32
from secemb_shared.dpf.checks import HASH_BYTES, SlotChecks
from secemb_shared.dpf.paths import CorrectionWords, HeldKeys, SessionKeys
from secemb_shared.kernel import compiled, instruction_sets
from secemb_shared.layout.geometry import Geometry
from secemb_shared.prg import BLOCK, Blocks, RingArray
from secemb_shared.randomness import Indices

_CHUNK_LEAVES = 256  # CHUNK_LEAVES in dpf_types.h: parts of a tree begin at multiples of it

Part = tuple[int, int, int, int]  # slots from, to; leaves from, to
Piece = TypeVar("Piece")


def _spread(begin: int, end: int, parts: int, step: int) -> list[tuple[int, int]]:
    """Cut [begin, end) into at most `parts` ranges that begin at multiples of `step` from `begin`."""
    size = max(step, -(-(end - begin) // (parts * step)) * step)
    return [(at, min(at + size, end)) for at in range(begin, end, size)]


def _slot_parts(geometry: Geometry, threads: int) -> list[Part]:
    return [(*slots, 0, geometry.leaves) for slots in _spread(0, geometry.slots, threads, 4)]


def _conflict_free(geometry: Geometry, threads: int) -> Iterator[list[Part]]:
    """Yield batches of parts that touch disjoint items, so that threads can share one array of sums.

    Different bins of one table hold different items, and so do different leaves of one bin; two tables overlap.
    """
    if threads == 1:
        yield [(0, geometry.slots, 0, geometry.leaves)]
        return
    a_table = geometry.bins * geometry.slots_per_bin
    for first in range(0, geometry.slots, a_table):
        last = first + a_table
        if geometry.bins >= 4 * threads:
            slots = _spread(first, last, threads, 4 * geometry.slots_per_bin)
            yield [(*some, 0, geometry.leaves) for some in slots]
        else:
            yield [(first, last, *some) for some in _spread(0, geometry.leaves, threads, _CHUNK_LEAVES)]


class Native:
    """The kernel; `threads` workers share the evaluation of large batches (the GIL is released)."""

    def __init__(self, *, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError("threads must be at least 1")
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    @property
    def name(self) -> str:
        """Return a human-readable description."""
        return f"native, {instruction_sets()[0]}"

    def hash_blocks(self, key: bytes, blocks: Blocks) -> Blocks:
        """Return H_K of every block."""
        out = np.empty(blocks.shape, dtype=np.uint8)
        self.hash_into(key, np.ascontiguousarray(blocks), out)
        return out

    def hash_into(self, key: bytes, blocks: Blocks, out: Blocks) -> None:
        """Write H_K of every block to `out`: the bare loop that serves as the baseline for measurements."""
        compiled.hash_blocks(key, blocks, out)

    def add_stream(self, key: bytes, values: RingArray, *, negative: bool) -> None:
        """Add the stream of `key` to `values` in place, or subtract it."""
        compiled.add_stream(key, values, values.itemsize, negative)

    def generate(
        self, keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
    ) -> tuple[CorrectionWords, Blocks, Blocks]:
        """FSS.PathGen for every slot of a session."""
        slots = alpha.size
        words = CorrectionWords(np.empty((depth, slots, BLOCK), np.uint8), np.empty((depth, slots), np.uint8))
        leaves = np.empty((2, slots, BLOCK), np.uint8)
        compiled.generate(
            keys.block(), roots0, roots1, alpha, slots, depth, words.left, words.right, leaves[0], leaves[1]
        )
        return words, leaves[0], leaves[1]

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        """FSS.ConvertGen for every slot of a session."""
        words = np.empty(payload.shape, dtype=payload.dtype)
        slots, width = payload.shape
        compiled.convert_gen(key, leaf0, leaf1, np.ascontiguousarray(payload), slots, width, payload.itemsize, words)
        return words

    def expand(self, held: HeldKeys, leaves: int) -> Blocks:
        """FSS.PathEval of the first `leaves` leaves of every slot of one session."""
        states = np.empty((-(-held.slots // 4), leaves, 4, BLOCK), dtype=np.uint8)
        self.expand_groups(held, states)
        return states.transpose(1, 0, 2, 3).reshape(leaves, -1, BLOCK)[:, : held.slots]

    def expand_groups(self, held: HeldKeys, states: Blocks) -> None:
        """Write the nodes in the kernel's layout: (groups of four slots, leaves, 4, 16)."""
        compiled.expand(_sessions(held), states.shape[1], states)

    def answer(self, held: HeldKeys, table: LeafTable, rows: Words32) -> Words32:
        """Return the XOR of the rows whose control bit is set."""
        answers = np.zeros((held.sessions, held.slots, rows.shape[1]), dtype=np.uint32)
        sessions, leaves = _sessions(held), _table(table, rows)

        def work(part: Part) -> None:
            compiled.answer(sessions, leaves, part, rows, rows.shape[1], answers)

        self._run(work, _slot_parts(table.geometry, self._threads))
        return answers

    def accumulate(
        self,
        held: HeldKeys,
        table: LeafTable,
        words: RingArray,
        sums: RingArray,
        slot_sums: RingArray | None = None,
    ) -> None:
        """Add FSS.ConvertEval of every leaf of every slot of every session to `sums` in place."""
        sessions, leaves = _sessions(held), _table(table, sums)
        words = np.ascontiguousarray(words)
        apart: list[RingArray] = []  # parts that share slots get separate slot sums, which are added afterwards

        def work(part: Part) -> None:
            own = slot_sums
            if slot_sums is not None and part[2:] != (0, table.geometry.leaves):
                own = np.zeros_like(slot_sums)
                apart.append(own)
            compiled.accumulate(sessions, leaves, part, words, words.shape[-1], words.itemsize, sums, own)

        if slot_sums is not None:
            slot_sums[...] = 0
        for batch in _conflict_free(table.geometry, self._threads):
            self._run(work, batch)
            while slot_sums is not None and apart:
                np.add(slot_sums, apart.pop(), out=slot_sums)

    def slot_sums(self, held: HeldKeys, leaves: int, words: RingArray) -> RingArray:
        """Return the sum of FSS.ConvertEval over all leaves of each slot."""
        sums = np.zeros(words.shape, dtype=words.dtype)
        compiled.slot_sums(_sessions(held), leaves, np.ascontiguousarray(words), words.shape[-1], words.itemsize, sums)
        return sums

    def project(self, key: bytes, values: RingArray) -> RingArray:
        """Return the projections of `values`."""
        out = np.empty(PROJECTIONS, dtype=values.dtype)
        compiled.project(key, np.ascontiguousarray(values), values.itemsize, out)
        return out

    def row_tags(self, key: bytes, rows: Words32, items: Indices) -> Words32:
        """Return the 32-bit tag of each row."""
        tags = np.empty(items.size, dtype=np.uint32)
        compiled.row_tags(key, np.ascontiguousarray(rows), np.ascontiguousarray(items), rows.shape[1], tags)
        return tags

    def leaf_hashes(self, key: bytes, nodes: Blocks, leaves: Indices) -> Blocks:
        """Return the hash of each node at its leaf."""
        hashes = np.empty((leaves.size, HASH_BYTES), dtype=np.uint8)
        compiled.leaf_hashes(key, np.ascontiguousarray(nodes), np.ascontiguousarray(leaves, dtype=np.int64), hashes)
        return hashes

    def answer_checked(
        self, held: HeldKeys, table: LeafTable, rows: Words32, checks: SlotChecks, keys: Blocks
    ) -> tuple[Words32, Blocks]:
        """Return the same as `answer` and, computed in the same pass, a fingerprint of all leaves for each session."""
        answers = np.zeros((held.sessions, held.slots, rows.shape[1]), dtype=np.uint32)
        sessions, leaves, plain = _sessions(held), _table(table, rows), np.ascontiguousarray
        checked, parts = (
            (plain(checks.leaf_keys), plain(checks.corrections), plain(keys), checks.first_slot),
            _slot_parts(table.geometry, self._threads),
        )
        prints = np.zeros((len(parts), held.sessions, BLOCK), dtype=np.uint8)

        def work(numbered: tuple[int, Part]) -> None:
            number, part = numbered
            compiled.answer_checked(sessions, leaves, part, rows, rows.shape[1], checked, answers, prints[number])

        self._run(work, list(enumerate(parts)))
        return answers, np.bitwise_xor.reduce(prints, axis=0)

    def _run(self, work: Callable[[Piece], None], parts: list[Piece]) -> None:
        if self._pool is None or len(parts) == 1:
            for part in parts:
                work(part)
        else:
            list(self._pool.map(work, parts))


def _sessions(held: HeldKeys) -> tuple[int, Blocks, Blocks, Blocks, npt.NDArray[np.uint8], int, int, int]:
    plain = np.ascontiguousarray
    arrays = plain(held.keys), plain(held.roots), plain(held.left), plain(held.right)
    return (held.party, *arrays, held.sessions, held.slots, held.depth)


def _table(table: LeafTable, rows: npt.NDArray[np.unsignedinteger]) -> tuple[npt.NDArray[np.int32], int, int, int]:
    geometry = table.geometry
    return np.ascontiguousarray(table.order), geometry.leaves, geometry.slots_per_bin, rows.shape[0]
