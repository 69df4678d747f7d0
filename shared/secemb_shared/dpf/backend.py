"""The operations that take nearly all of the computing time, and the choice of their implementation.

There are two implementations: `Portable` (NumPy and `cryptography`), which is the definition, and `Native` (the C
kernel), which computes the same with AES instructions. All other code works with either.
"""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf.checks import SlotChecks
from secemb_shared.dpf.paths import SEED_BITS, CorrectionWords, HeldKeys, SessionKeys
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout.geometry import Geometry
from secemb_shared.prg import Blocks, RingArray
from secemb_shared.randomness import Indices

Words32 = npt.NDArray[np.uint32]

PROJECTIONS = 128  # of the norm proof: one per bit of a block


@dataclass(frozen=True, slots=True, repr=False)
class LeafTable:
    """The item of each leaf of each bin in one round."""

    geometry: Geometry
    order: npt.NDArray[np.int32]  # (tables · bins, leaves); −1 past the end of a short bin


class Backend(Protocol):
    """The operations of a backend; it keeps no state between calls."""

    @property
    def name(self) -> str:
        """Return a human-readable description."""

    def hash_blocks(self, key: bytes, blocks: Blocks) -> Blocks:
        """Return H_K of every block."""

    def add_stream(self, key: bytes, values: RingArray, *, negative: bool) -> None:
        """Add the stream of `key`, read as ring elements, to `values` in place, or subtract it."""

    def generate(
        self, keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
    ) -> tuple[CorrectionWords, Blocks, Blocks]:
        """FSS.PathGen for every slot of a session."""

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        """FSS.ConvertGen for every slot of a session: (slots, width)."""

    def expand(self, held: HeldKeys, leaves: int) -> Blocks:
        """FSS.PathEval of the first `leaves` leaves of every slot of one session: (leaves, slots, 16)."""

    def answer(self, held: HeldKeys, table: LeafTable, rows: Words32) -> Words32:
        """Return the XOR of the rows whose control bit is set: (sessions, slots, columns)."""

    def accumulate(
        self,
        held: HeldKeys,
        table: LeafTable,
        words: RingArray,
        sums: RingArray,
        slot_sums: RingArray | None = None,
    ) -> None:
        """Add FSS.ConvertEval of every leaf of every slot of every session to `sums` (items, width) in place.

        In the same pass, `slot_sums` (sessions, slots, width) is filled with what `slot_sums()` returns.
        """

    def slot_sums(self, held: HeldKeys, leaves: int, words: RingArray) -> RingArray:
        """Return the sum of FSS.ConvertEval over all leaves of each slot, also in short bins: (sessions, slots, width).

        It is this party's share of what the slot adds, if the keys are those of a point function.
        """

    def project(self, key: bytes, values: RingArray) -> RingArray:
        """Return the 128 projections of `values` (n) that the norm proof takes, from the stream of `key`.

        Element i is multiplied by bit k of block 2i, minus bit k of block 2i + 1, and added to projection k.
        """

    def row_tags(self, key: bytes, rows: Words32, items: Indices) -> Words32:
        """Return the 32-bit tag of each row of `rows` (n, width)."""

    def leaf_hashes(self, key: bytes, nodes: Blocks, leaves: Indices) -> Blocks:
        """Return the hash of each node at its leaf: (n, 48)."""

    def answer_checked(
        self, held: HeldKeys, table: LeafTable, rows: Words32, checks: SlotChecks, keys: Blocks
    ) -> tuple[Words32, Blocks]:
        """Return the same as `answer`, and in the same pass a fingerprint of each session's leaves: (sessions, 16)."""


@cache
def default_backend() -> Backend:
    """Return the native backend if it was built and the processor has AES instructions, else the portable one."""
    from secemb_shared.dpf._native import Native
    from secemb_shared.dpf._portable import Portable
    from secemb_shared.kernel import native_available

    return Native() if native_available() else Portable()


def expand_roots(label: Label, seed: bytes, slots: int, backend: Backend | None = None) -> Blocks:
    """Return the (slots, 16) root seeds from one party's master seed: its stream with the lowest bits cleared."""
    words = np.zeros((slots, 2), dtype=np.uint64)
    (backend or default_backend()).add_stream(label.key(Purpose.ROOTS, seed), words, negative=False)
    roots = words.astype("<u8", copy=False).view(np.uint8)
    roots[:, 0] &= SEED_BITS[0]
    return roots


def leaf_corrections(
    label: Label, alpha: Indices, nodes: tuple[Blocks, Blocks], backend: Backend | None = None
) -> Blocks:
    """Return the corrections from both parties' nodes at `alpha`: H(α, n₀) ⊕ H(α, n₁), (slots, 48)."""
    chosen, key = backend or default_backend(), label.key(Purpose.LEAF_HASH)
    return chosen.leaf_hashes(key, nodes[0], alpha) ^ chosen.leaf_hashes(key, nodes[1], alpha)
