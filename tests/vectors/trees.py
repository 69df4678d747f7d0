"""Paths and payloads against their vectors."""

import hashlib

import numpy as np
from tests.unit.sessions import fingerprints
from tests.vectors.values import Case, blocks, elements, numbers, raw

from secemb_lab.vectors.document import each, plain
from secemb_shared.dpf import (
    Backend,
    CorrectionWords,
    HeldKeys,
    LeafTable,
    RingArray,
    SessionKeys,
    SlotChecks,
    convert_eval,
    expand_roots,
    fingerprint_keys,
    leaf_corrections,
    path_eval,
)
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout import Geometry
from secemb_shared.prg import Blocks
from secemb_shared.ring import Ring


class Trees:
    """One session's trees as a file describes them."""

    def __init__(self, case: Case, backend: Backend) -> None:
        self.case, self.backend = case, backend
        self.label = Label(raw(case["task_id"]), case["round"], raw(case["session_id"]))
        self.keys = SessionKeys.of(self.label)
        self.roots = [blocks(roots) for roots in case["roots"]]
        self.alpha, self.depth = numbers(case["alpha"]), int(case["depth"])
        left = [blocks(level) for level in case["left_words"]]
        self.words = CorrectionWords(
            np.array(left, dtype=np.uint8).reshape(self.depth, self.alpha.size, 16),
            np.array(case["right_bits"], dtype=np.uint8).reshape(self.depth, self.alpha.size),
        )

    def held(self, party: int) -> HeldKeys:
        return HeldKeys.of(party, self.keys, self.roots[party], self.words)

    def nodes(self, party: int) -> Blocks:
        """Return the node of every leaf of every slot: (slots, leaves, 16), once by each way to get there."""
        leaves = 1 << self.depth
        at_once = self.backend.expand(self.held(party), leaves).transpose(1, 0, 2)
        for leaf in range(leaves) if leaves <= 32 else (0, 1, leaves // 2, leaves - 1):
            assert np.array_equal(path_eval(self.held(party), leaf), at_once[:, leaf])
        return at_once

    def check(self) -> None:
        case = self.case
        keys = {name: raw(key) for name, key in case["keys"].items()}
        assert SessionKeys(**keys) == self.keys
        for party, seed in enumerate(case["seeds"]):
            assert each(expand_roots(self.label, raw(seed), self.alpha.size, self.backend)) == case["roots"][party]
        words, *ends = self.backend.generate(self.keys, self.roots[0], self.roots[1], self.alpha, self.depth)
        assert [each(level) for level in words.left] == case["left_words"]
        assert words.right.tolist() == case["right_bits"]
        assert [each(end) for end in ends] == case["ends"]


def check_paths(case: Case, backend: Backend) -> None:
    trees = Trees(case, backend)
    trees.check()
    _check_leaves(trees, case)
    nodes = [trees.nodes(party) for party in (0, 1)]
    if "nodes" in case:
        assert [[each(slot) for slot in party] for party in nodes] == case["nodes"]
    else:
        digests = [[hashlib.sha256(slot.tobytes()).hexdigest() for slot in party] for party in nodes]
        assert digests == case["nodes_sha256"]


def _check_leaves(trees: Trees, case: Case) -> None:
    assert trees.label.key(Purpose.LEAF_HASH).hex() == case["leaf_key"]
    ends = blocks(case["ends"][0]), blocks(case["ends"][1])
    corrections = leaf_corrections(trees.label, trees.alpha, ends, trees.backend)
    assert each(corrections) == case["corrections"]
    keys = fingerprint_keys(Label(trees.label.task_id, trees.label.number), raw(case["check_key"]))
    assert each(keys) == case["fingerprint_keys"]
    checks = SlotChecks.of(trees.label, corrections)
    for party in (0, 1):
        found = fingerprints(trees.backend, trees.held(party), 1 << trees.depth, checks, keys)
        assert found.tobytes().hex() == case["fingerprints"][party]
    assert case["fingerprints"][0] == case["fingerprints"][1]


def check_convert(case: Case, backend: Backend) -> None:
    trees, ring, width = Trees(case, backend), Ring(case["ring_bits"]), int(case["width"])
    trees.check()
    ends = [blocks(end) for end in case["ends"]]
    payload = elements(case["payload"], ring).reshape(1, width)
    word = backend.convert_gen(trees.keys.convert, ends[0], ends[1], payload)
    assert plain(word) == case["word"]
    for party in (0, 1):
        nodes = trees.nodes(party)[0]
        assert each(nodes) == case["nodes"][party]
        assert each(convert_eval(trees.keys.convert, party, nodes, word)) == case["shares"][party]
        assert each(_accumulated(trees, party, word)) == case["shares"][party]
    total = sum(np.stack([elements(share, ring) for share in shares]) for shares in case["shares"])
    expected = np.zeros((2, width), dtype=ring.dtype)
    expected[trees.alpha[0]] = payload[0]
    assert np.array_equal(np.asarray(total, dtype=ring.dtype), expected)


def _accumulated(trees: Trees, party: int, word: RingArray) -> RingArray:
    """Return the shares of both leaves, by the operation that servers use."""
    geometry = Geometry(items=2, tables=1, bins=1, slots_per_bin=1)
    sums = np.zeros((2, word.shape[1]), dtype=word.dtype)
    table = LeafTable(geometry, np.array([[0, 1]], dtype=np.int32))
    trees.backend.accumulate(trees.held(party), table, word[None], sums)
    return sums
