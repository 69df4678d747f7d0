"""The portable backend: the definition of every batched operation, in NumPy and `cryptography`.

Payloads at the end of a path are Convert, FSS.ConvertGen and FSS.ConvertEval of the paper.
"""

from collections.abc import Iterator

import numpy as np

from secemb_shared import prg
from secemb_shared.dpf import paths
from secemb_shared.dpf.backend import PROJECTIONS, LeafTable, Words32
from secemb_shared.dpf.checks import HASH_BYTES, SlotChecks, corrected, leaf_hash, leaf_prints
from secemb_shared.dpf.paths import SEED_BITS, CorrectionWords, HeldKeys, SessionKeys, control_bits
from secemb_shared.prg import BLOCK, Blocks, RingArray, hash_blocks
from secemb_shared.randomness import Indices

_WORKING_BYTES = 1 << 25  # of pads at a time, so that large catalogues do not take gigabytes
_PROJECTED_AT_ONCE = 1 << 12


def convert(key: bytes, nodes: Blocks, width: int, dtype: np.dtype[np.unsignedinteger]) -> RingArray:
    """Return Convert(s), `width` ring elements per node: blocks H_K(s ⊕ 0), H_K(s ⊕ 1), … read little-endian."""
    blocks = -(-width * dtype.itemsize // BLOCK)
    inputs = np.repeat((nodes & SEED_BITS)[..., None, :], blocks, axis=-2)
    inputs.view("<u8")[..., 0] ^= np.arange(blocks, dtype=np.uint64)
    pads = hash_blocks(key, inputs).view(dtype.newbyteorder("<"))
    return pads.reshape(*nodes.shape[:-1], -1)[..., :width]


def convert_gen(key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
    """FSS.ConvertGen: CW = (−1)^t₁ · (β − Convert(s₀) + Convert(s₁)) for every slot."""
    width = payload.shape[-1]
    pads = [convert(key, leaf, width, payload.dtype) for leaf in (leaf0, leaf1)]
    words = payload - pads[0] + pads[1]
    negative = control_bits(leaf1)[..., None] == 1
    return np.where(negative, -words, words)


def convert_eval(key: bytes, party: int, nodes: Blocks, words: RingArray) -> RingArray:
    """FSS.ConvertEval: (−1)^b · (Convert(s) + t · CW); `words` broadcasts against the nodes."""
    pads = convert(key, nodes, words.shape[-1], words.dtype)
    share: RingArray = pads + control_bits(nodes)[..., None].astype(words.dtype) * words
    return -share if party else share


class Portable:
    """Runs anywhere, but 10 to 90 times slower than the kernel."""

    name = "portable"

    def hash_blocks(self, key: bytes, blocks: Blocks) -> Blocks:
        """Return H_K of every block."""
        return prg.hash_blocks(key, blocks)

    def add_stream(self, key: bytes, values: RingArray, *, negative: bool) -> None:
        """Add the stream of `key` to `values` in place, or subtract it."""
        blocks = prg.stream(key, -(-values.nbytes // BLOCK))
        pads = blocks.reshape(-1).view(values.dtype.newbyteorder("<"))[: values.size].reshape(values.shape)
        (np.subtract if negative else np.add)(values, pads, out=values)

    def generate(
        self, keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
    ) -> tuple[CorrectionWords, Blocks, Blocks]:
        """FSS.PathGen for every slot of a session."""
        return paths.path_gen(keys, roots0, roots1, alpha, depth)

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        """FSS.ConvertGen for every slot of a session."""
        return convert_gen(key, leaf0, leaf1, payload)

    def expand(self, held: HeldKeys, leaves: int) -> Blocks:
        """FSS.PathEval of the first `leaves` leaves, level by level, computing only the nodes needed."""
        left_key, right_key, _ = (bytes(key) for key in held.keys[0])
        nodes = paths.root_nodes(held.roots[0], held.party)[None]
        for level in range(held.depth):
            below = 1 << (held.depth - level)
            nodes = nodes[: -(-leaves // below)]
            left_word = held.left[0, level]
            right_word = paths.with_control(left_word, held.right[0, level])
            seeds, bits = nodes & SEED_BITS, paths.control_bits(nodes)[..., None]
            children = np.empty((nodes.shape[0], 2, *nodes.shape[1:]), dtype=np.uint8)
            children[:, 0] = prg.hash_blocks(left_key, seeds) ^ bits * left_word
            children[:, 1] = prg.hash_blocks(right_key, seeds) ^ bits * right_word
            nodes = children.reshape(-1, *nodes.shape[1:])
        return nodes[:leaves]

    def answer(self, held: HeldKeys, table: LeafTable, rows: Words32) -> Words32:
        """Return the XOR of the rows whose control bit is set."""
        answers = np.zeros((held.sessions, held.slots, rows.shape[1]), dtype=np.uint32)
        for session, slot, nodes in self._trees(held, table.geometry.leaves, BLOCK):
            items = table.order[slot // table.geometry.slots_per_bin]
            chosen = items[(paths.control_bits(nodes) == 1) & (items >= 0)]
            answers[session, slot] = np.bitwise_xor.reduce(rows[chosen], axis=0)
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
        for session, slot, share in self._shares(held, table.geometry.leaves, words):
            items = table.order[slot // table.geometry.slots_per_bin]
            real = items >= 0
            sums[items[real]] += share[real]
            if slot_sums is not None:
                slot_sums[session, slot] = share.sum(axis=0, dtype=words.dtype)

    def slot_sums(self, held: HeldKeys, leaves: int, words: RingArray) -> RingArray:
        """Return the sum of FSS.ConvertEval over all leaves of each slot."""
        sums = np.empty_like(words)
        for session, slot, share in self._shares(held, leaves, words):
            sums[session, slot] = share.sum(axis=0, dtype=words.dtype)
        return sums

    def project(self, key: bytes, values: RingArray) -> RingArray:
        """Return the projections of `values`, computed in batches of elements."""
        sums = np.zeros(PROJECTIONS, dtype=values.dtype)
        for first in range(0, values.size, _PROJECTED_AT_ONCE):
            some = values[first : first + _PROJECTED_AT_ONCE]
            blocks = prg.stream(key, 2 * some.size, 2 * first).reshape(some.size, 2, BLOCK)
            bits = np.unpackbits(blocks, axis=-1, bitorder="little").astype(values.dtype)
            sums += some @ (bits[:, 0] - bits[:, 1])
        return sums

    def row_tags(self, key: bytes, rows: Words32, items: Indices) -> Words32:
        """Chain h = H_K(h ⊕ block) over the row's bytes, zero-padded, starting from the item's number."""
        count, width = rows.shape
        padded = np.zeros((count, -(-width // 4) * 4), dtype="<u4")
        padded[:, :width] = rows
        chain = np.zeros((count, 2), dtype="<u8")
        chain[:, 0] = items
        state = chain.view(np.uint8)
        for block in np.split(padded.view(np.uint8), padded.shape[1] // 4, axis=1):
            state = prg.hash_blocks(key, state ^ block)
        return state[:, :4].copy().view("<u4")[:, 0].astype(np.uint32)

    def _shares(self, held: HeldKeys, leaves: int, words: RingArray) -> Iterator[tuple[int, int, RingArray]]:
        """Yield (session, slot, FSS.ConvertEval of its leaves)."""
        for session, slot, nodes in self._trees(held, leaves, words.shape[-1] * words.itemsize):
            yield session, slot, convert_eval(bytes(held.keys[session, 2]), held.party, nodes, words[session, slot])

    def leaf_hashes(self, key: bytes, nodes: Blocks, leaves: Indices) -> Blocks:
        """Return the hash of each node at its leaf."""
        hashes = np.empty((leaves.size, HASH_BYTES), dtype=np.uint8)
        for leaf in np.unique(leaves):
            here = leaves == leaf
            hashes[here] = leaf_hash(key, nodes[here], int(leaf))
        return hashes

    def answer_checked(
        self, held: HeldKeys, table: LeafTable, rows: Words32, checks: SlotChecks, keys: Blocks
    ) -> tuple[Words32, Blocks]:
        """Return the same as `answer`, and a fingerprint of all leaves for each session."""
        return self.answer(held, table, rows), self.fingerprint(held, table.geometry.leaves, checks, keys)

    def fingerprint(self, held: HeldKeys, leaves: int, checks: SlotChecks, keys: Blocks) -> Blocks:
        """Return one block for each session, over all leaves of all its slots."""
        prints = np.zeros((held.sessions, BLOCK), dtype=np.uint8)
        for session, first, trees in self._parts(held, leaves, HASH_BYTES):
            key, some = bytes(checks.leaf_keys[session]), slice(first, first + trees.shape[1])
            for leaf, nodes in enumerate(trees):
                hashes = leaf_hash(key, nodes, leaf)
                values = corrected(hashes, control_bits(nodes), checks.corrections[session, some])
                prints[session] ^= leaf_prints(keys, values, first_slot=checks.first_slot + first, leaf=leaf)
        return prints

    def _trees(self, held: HeldKeys, leaves: int, leaf_bytes: int) -> Iterator[tuple[int, int, Blocks]]:
        """Yield (session, slot, nodes of its leaves)."""
        for session, first, nodes in self._parts(held, leaves, leaf_bytes):
            for index in range(nodes.shape[1]):
                yield session, first + index, nodes[:, index]

    def _parts(self, held: HeldKeys, leaves: int, leaf_bytes: int) -> Iterator[tuple[int, int, Blocks]]:
        """Yield (session, first slot, nodes), the nodes (leaves, slots, 16), with as many slots as memory allows."""
        at_once = max(1, _WORKING_BYTES // (leaves * leaf_bytes))
        for session in range(held.sessions):
            for first in range(0, held.slots, at_once):
                some = slice(first, first + at_once)
                part = HeldKeys(
                    held.party,
                    held.keys[session : session + 1],
                    held.roots[session : session + 1, some],
                    held.left[session : session + 1, :, some],
                    held.right[session : session + 1, :, some],
                )
                yield session, first, self.expand(part, leaves)
