"""Vectors of the point-function sharing: paths, and payloads at their ends."""

import hashlib

import numpy as np

from secemb_lab.vectors.document import Json, Source, each, plain
from secemb_shared.dpf import (
    HeldKeys,
    SessionKeys,
    SlotChecks,
    convert_eval,
    expand_roots,
    fingerprint_keys,
    leaf_corrections,
    path_eval,
)
from secemb_shared.dpf._portable import Portable
from secemb_shared.dpf.paths import CorrectionWords, control_bits
from secemb_shared.labels import Label, Purpose
from secemb_shared.prg import Blocks
from secemb_shared.randomness import Indices
from secemb_shared.ring import Ring

_WRITTEN_OUT = 6  # deeper trees are given by the digest of their leaves


class _Paths:
    """The trees of one session with everything that goes into them and comes out."""

    def __init__(self, label: Label, seeds: tuple[bytes, bytes], alpha: Indices, depth: int) -> None:
        self.label, self.seeds, self.alpha, self.depth = label, seeds, alpha, depth
        self.keys = SessionKeys.of(label)
        self.roots = [expand_roots(label, seed, alpha.size, Portable()) for seed in seeds]
        generated = Portable().generate(self.keys, self.roots[0], self.roots[1], alpha, depth)
        self.words: CorrectionWords = generated[0]
        self.ends = generated[1], generated[2]

    def held(self, party: int) -> HeldKeys:
        """Return what one party has."""
        return HeldKeys.of(party, self.keys, self.roots[party], self.words)

    def nodes(self, party: int) -> Blocks:
        """Return the node of every leaf by FSS.PathEval, one leaf after the other: (slots, leaves, 16)."""
        held = self.held(party)
        return np.stack([path_eval(held, leaf) for leaf in range(1 << self.depth)], axis=1)

    def inputs(self) -> Json:
        """Return what FSS.PathGen is given, with the derived keys and roots."""
        keys = {"left": self.keys.left, "right": self.keys.right, "convert": self.keys.convert}
        return {
            "task_id": self.label.task_id.hex(),
            "round": self.label.number,
            "session_id": self.label.session_id.hex(),
            "keys": {name: key.hex() for name, key in keys.items()},
            "seeds": [seed.hex() for seed in self.seeds],
            "roots": [each(roots) for roots in self.roots],
            "depth": self.depth,
            "alpha": self.alpha.tolist(),
        }

    def checks(self, secret: bytes) -> Json:
        """Return what shows that the trees of a slot differ in one leaf: both parties find the same fingerprint."""
        corrections = leaf_corrections(self.label, self.alpha, self.ends, Portable())
        keys = fingerprint_keys(Label(self.label.task_id, self.label.number), secret)
        checks = SlotChecks.of(self.label, corrections)
        found = [Portable().fingerprint(self.held(party), 1 << self.depth, checks, keys) for party in (0, 1)]
        return {
            "leaf_key": self.label.key(Purpose.LEAF_HASH).hex(),
            "corrections": each(corrections),
            "check_key": secret.hex(),
            "fingerprint_keys": each(keys),
            "fingerprints": [one.tobytes().hex() for one in found],
        }

    def outputs(self) -> Json:
        """Return the correction words, level by level, and both parties' nodes at the leaves `alpha`."""
        return {
            "left_words": [each(level) for level in self.words.left],
            "right_bits": self.words.right.tolist(),
            "ends": [each(nodes) for nodes in self.ends],
        }


def paths() -> Json:
    """FSS.PathGen, and FSS.PathEval of every leaf by both parties."""
    source = Source("paths")
    shapes = [(0, [0, 0]), (1, [0, 1]), (2, [0, 1, 2, 3]), (3, [5]), (5, [0, 31, 17, 8, 22]), (9, [0, 511, 300])]
    return {"cases": [_path_case(source, depth, np.array(alpha, dtype=np.int64)) for depth, alpha in shapes]}


def _path_case(source: Source, depth: int, alpha: Indices) -> Json:
    trees = _Paths(source.label(depth), (source(16), source(16)), alpha, depth)
    nodes = [trees.nodes(party) for party in (0, 1)]
    case = {**trees.inputs(), **trees.outputs(), **trees.checks(source(16))}
    if depth < _WRITTEN_OUT:
        return {**case, "nodes": [[each(slot) for slot in party] for party in nodes]}
    digests = [[hashlib.sha256(slot.tobytes()).hexdigest() for slot in party] for party in nodes]
    return {**case, "nodes_sha256": digests}


def convert() -> Json:
    """FSS.ConvertGen, and FSS.ConvertEval of every leaf by both parties, for either sign of the word."""
    source = Source("convert")
    return {
        "cases": [
            _convert_case(source, Ring(bits), width, negative)
            for bits in (32, 64)
            for width in (1, 4, 5, 65)
            for negative in (False, True)
        ]
    }


def _convert_case(source: Source, ring: Ring, width: int, negative: bool) -> Json:
    trees = _path_with_sign(source, negative)
    payload = np.frombuffer(source(width * ring.element_bytes), dtype=ring.dtype.newbyteorder("<"))
    beta = payload.astype(ring.dtype).reshape(1, width)
    words = Portable().convert_gen(trees.keys.convert, *trees.ends, beta)
    shares = [convert_eval(trees.keys.convert, party, trees.nodes(party)[0], words) for party in (0, 1)]
    return {
        **trees.inputs(),
        **trees.outputs(),
        "ring_bits": ring.bits,
        "width": width,
        "payload": plain(beta),
        "word": plain(words),
        "nodes": [each(trees.nodes(party)[0]) for party in (0, 1)],
        "shares": [each(share) for share in shares],
    }


def _path_with_sign(source: Source, negative: bool) -> _Paths:
    """Return a tree of two leaves where t₁ at the end of the path is as asked for."""
    while True:
        trees = _Paths(source.label(1), (source(16), source(16)), source.below(2, 1), 1)
        if bool(control_bits(trees.ends[1])[0]) == negative:
            return trees
