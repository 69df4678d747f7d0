"""A session whose device follows no rules: any keys, any update, and the best possible norm proof."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from secemb_shared import secure_sum
from secemb_shared.dpf import (
    Blocks,
    CorrectionWords,
    RingArray,
    SessionKeys,
    default_backend,
    expand_roots,
    leaf_corrections,
)
from secemb_shared.dpf.backend import PROJECTIONS
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, decode_keys, encode_keys, encode_update, public_keys_digest
from secemb_shared.messages.codec import SEED_BYTES
from secemb_shared.norm import NormShape, Proof, Statement
from secemb_shared.norm.circuit import lifted, witness_of
from secemb_shared.norm.proof import prove_witness
from secemb_shared.norm.transcript import challenge
from secemb_shared.randomness import Indices, secure_bytes

Messages = tuple[bytes, bytes]  # to server 0, to server 1
Payload = Callable[[RoundSpec, Indices], RingArray]  # the round and the item in each slot → (slots, width)


@dataclass
class Forger:
    """The parts of a session's keys; an attack may change each part before they are encoded."""

    round: RoundSpec
    session_id: bytes
    wanted: Indices  # the requested items
    items: Indices  # (slots,) the item in each slot, -1 where there is none
    alphas: Indices  # (slots,) the leaf that each slot's key points at
    seeds: tuple[bytes, bytes]
    words: CorrectionWords
    corrections: Blocks  # cs, one a slot
    leaves: tuple[Blocks, Blocks]

    @classmethod
    def begin(cls, round_: RoundSpec, session_id: bytes, wanted: Indices) -> "Forger":
        """Make the parts like an honest device."""
        backend, geometry, label = default_backend(), round_.task.geometry, round_.label(session_id)
        placement = round_.layout.place(wanted, secure_bytes)
        seeds = secure_bytes(SEED_BYTES), secure_bytes(SEED_BYTES)
        roots = [expand_roots(label, seed, geometry.slots, backend) for seed in seeds]
        words, *leaves = backend.generate(SessionKeys.of(label), roots[0], roots[1], placement.leaves, geometry.depth)
        corrections = leaf_corrections(label, placement.leaves, (leaves[0], leaves[1]), backend)
        return cls(
            round_,
            session_id,
            wanted,
            placement.items,
            placement.leaves,
            seeds,
            words,
            corrections,
            (leaves[0], leaves[1]),
        )

    def keys(self) -> Messages:
        """Return the keys to both servers, with the current parts."""
        first, second = (
            encode_keys(self.round, self.session_id, party, seed, self.words, self.corrections)
            for party, seed in enumerate(self.seeds)
        )
        return first, second

    def point_words(self, payload: RingArray) -> RingArray:
        """Return the correction words with which each slot adds its payload to its leaf, if the keys are honest."""
        key = self.round.label(self.session_id).key(Purpose.CONVERT)
        return default_backend().convert_gen(key, *self.leaves, payload)

    def update(self, words: RingArray) -> tuple[Messages, bool]:
        """Return the messages with these correction words, and whether a true proof could be made."""
        task, label, backend = self.round.task, self.round.label(self.session_id), default_backend()
        nothing = np.zeros(task.dense_size, dtype=words.dtype)
        hidden = secure_sum.hide(label.key(Purpose.DENSE_SHARE, self.seeds[1]), nothing, backend)
        shape, proof, true = task.norm_shape, None, True
        if shape is not None:
            proof, true = self._prove(shape, words, hidden)
        return (
            encode_update(self.round, self.session_id, 0, words, hidden, proof),
            encode_update(self.round, self.session_id, 1, words, None, proof),
        ), true

    def _prove(self, shape: NormShape, words: RingArray, dense_share: RingArray) -> tuple[Proof, bool]:
        """Make a true proof; if the update is too long, make one with false slack bits."""
        backend, keys = default_backend(), self.keys()
        shares = []
        for party in (0, 1):
            held = decode_keys(self.round, self.session_id, party, keys[party], backend)
            [sums] = backend.slot_sums(held, self.round.task.geometry.leaves, words[None])
            shares.append(np.concatenate([sums.reshape(-1), dense_share if party == 0 else -dense_share]))
        statement = Statement(
            self.round.label(self.session_id), self.round.task.ring, public_keys_digest(keys[1]), words
        )
        committed = (
            statement.commit_share(0, self.seeds[0], dense_share),
            statement.commit_share(1, self.seeds[1], None),
        )
        seed = challenge(statement, *committed)
        both = [lifted(shape, party, backend.project(seed[:16], share)) for party, share in enumerate(shares)]
        sums = [first + second for first, second in zip(*both, strict=True)]
        witness = witness_of(shape, both[0], both[1])
        true = witness is not None
        if witness is None:
            half = 1 << (shape.bits - 1)
            witness = [(total + half) >> shape.bits for total in sums] + [0] * (shape.witness - PROJECTIONS)
        proof = prove_witness(
            shape, statement, seeds=self.seeds, committed=committed, seed=seed, lifted=sums, witness=witness
        )
        return proof, true


def macs_of(round_: RoundSpec, session_id: bytes, keys: Messages, update: Messages) -> Messages:
    """Return the MACs that prove to each server that an upload is from whoever made the keys."""
    label = round_.label(session_id)
    first, second = (
        upload_mac(label, hold_of(own), hashlib.sha256(sent).digest()) for own, sent in zip(keys, update, strict=True)
    )
    return first, second
