"""Whole training rounds against their vectors: every message, both shares and the sum."""

import hashlib

import numpy as np
import numpy.typing as npt
from tests.vectors.values import Case, elements, numbers, raw, words32

from secemb_lab.party_round import PartyRound
from secemb_lab.vectors.document import Replay, each
from secemb_sdk.round.session import DeviceSession
from secemb_shared import row_access, secure_sum
from secemb_shared.dpf import Backend, PathSecret, RingArray, SessionKeys, expand_roots, leaf_corrections
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.labels import Purpose
from secemb_shared.layout import Placement
from secemb_shared.messages import (
    RoundSpec,
    TaskSpec,
    decode_answer,
    decode_keys,
    encode_keys,
    encode_update,
    public_keys_digest,
    public_update_digest,
)
from secemb_shared.norm import Proof, Statement, prove


class Round:
    """One round as the file describes it, and two parties that take part in it now."""

    def __init__(self, case: Case, backend: Backend) -> None:
        self.case, self.backend = case, backend
        self.task = TaskSpec.decode(case["task"].encode("ascii"))
        self.round = RoundSpec.decode(case["round"].encode("ascii"), self.task)
        table = np.stack([words32(row) for row in case["table"]]).view(np.float32)
        self.parties = [PartyRound(self.round, party, table, backend=backend) for party in (0, 1)]
        assert each(row_access.tag_rows(self.round, table, backend)[:, -1]) == case["tags"]
        assert self.round.layout.order().tolist() == case["order"]
        assert self.task.name == case["name"]

    def check(self) -> None:
        for session in self.case["sessions"]:
            self._check_device(session)
            self._check_from_explicit_inputs(session)
        counted = [raw(name) for name in self.case["counted"]]
        assert [party.complete() for party in self.parties] == [counted, counted]
        total = {"rows": np.zeros((self.task.items, self.task.row_width), dtype=self.task.ring.dtype)}
        total["dense"] = np.zeros(self.task.dense_size, dtype=self.task.ring.dtype)
        for party, expected in zip(self.parties, self.case["shares"], strict=True):
            share = party.share(counted)
            assert self._written(share.rows, share.dense) == expected
            total["rows"] += share.rows
            total["dense"] += share.dense
        assert self._written(**total) == self.case["sum"]
        self._check_plain_sum(total)

    def _written(self, rows: RingArray, dense: RingArray) -> Case:
        ring = self.task.ring
        return {"rows": [ring.pack(row).hex() for row in rows], "dense": ring.pack(dense).hex()}

    def _check_device(self, case: Case) -> None:
        """Play the session with the bytes that were drawn."""
        items = numbers(case["items"])
        replay = Replay(raw(case["drawn"]))
        device = DeviceSession(self.round, items, random_bytes=replay, backend=self.backend)
        assert device.session_id == raw(case["session_id"])
        assert device.truncated == case["truncated"]
        assert [message.hex() for message in device.keys] == case["keys"]
        answers = [party.keys(device.session_id, key) for party, key in zip(self.parties, device.keys, strict=True)]
        assert [answer.hex() for answer in answers] == case["answers"]
        read_items, rows = device.read((answers[0], answers[1]))
        assert (read_items.tolist(), each(rows)) == (case["read_items"], case["read_rows"])
        assert each(rows) == [self.case["table"][item] for item in read_items]
        updates = device.write(items, self._updates(case), self._dense(case))
        assert [message.hex() for message in updates] == case["update"]
        assert [hold.hex() for hold in device.holds] == case["holds"]
        assert [mac.hex() for mac in device.marks.macs] == case["proofs"]
        for party, message in zip(self.parties, updates, strict=True):
            party.update(device.session_id, message)

    def _check_from_explicit_inputs(self, case: Case) -> None:
        """Make the messages again from seeds, leaves and payload alone, as another implementation would."""
        session_id, seeds = raw(case["session_id"]), [raw(seed) for seed in case["seeds"]]
        label, geometry, ring = self.round.label(session_id), self.task.geometry, self.task.ring
        placement = self._placement(case)
        roots = [expand_roots(label, seed, geometry.slots, self.backend) for seed in seeds]
        words, *ends = self.backend.generate(
            SessionKeys.of(label), roots[0], roots[1], placement.leaves, geometry.depth
        )
        corrections = leaf_corrections(label, placement.leaves, (ends[0], ends[1]), self.backend)
        keys = [encode_keys(self.round, session_id, party, seeds[party], words, corrections) for party in (0, 1)]
        assert [message.hex() for message in keys] == case["keys"]
        assert {public_keys_digest(message).hex() for message in keys} == {case["keys_digest"]}
        payload = np.stack([elements(row, ring) for row in case["payload"]])
        encoded = ring.encode(self._updates(case), bound=self.task.bound)
        assert np.array_equal(placement.arrange(numbers(case["items"]), encoded), payload)
        dense = ring.encode(self._dense(case), bound=self.task.bound)
        assert ring.pack(dense).hex() == case["dense_elements"]
        correction = row_access.correction_words(PathSecret(ends[0], ends[1]), label, payload, self.backend)
        hidden = secure_sum.hide(label.key(Purpose.DENSE_SHARE, seeds[1]), dense, self.backend)
        proof = self._prove(session_id, keys, seeds, correction, payload, dense)
        updates = [
            encode_update(self.round, session_id, 0, correction, hidden, proof),
            encode_update(self.round, session_id, 1, correction, None, proof),
        ]
        assert [message.hex() for message in updates] == case["update"]
        assert {public_update_digest(self.round, message).hex() for message in updates} == {case["update_digest"]}
        for hold, key, message, mac in zip(case["holds"], keys, updates, case["proofs"], strict=True):
            assert hold_of(key).hex() == hold
            assert upload_mac(label, raw(hold), hashlib.sha256(message).digest()).hex() == mac
        answers = [decode_answer(self.round, session_id, b, raw(case["answers"][b])) for b in (0, 1)]
        items, rows = row_access.recover(self.round, placement, (answers[0], answers[1]), self.backend)
        assert (items.tolist(), each(rows)) == (case["read_items"], case["read_rows"])

    def _prove(
        self,
        session_id: bytes,
        keys: list[bytes],
        seeds: list[bytes],
        words: RingArray,
        payload: RingArray,
        dense: RingArray,
    ) -> Proof | None:
        if self.task.norm_shape is None:
            return None
        held = decode_keys(self.round, session_id, 1, keys[1], self.backend)
        [sums] = self.backend.slot_sums(held, self.task.geometry.leaves, words[None])
        return prove(
            self.task.norm_shape,
            Statement(self.round.label(session_id), self.round.task.ring, public_keys_digest(keys[1]), words),
            seeds=(seeds[0], seeds[1]),
            payload=payload,
            dense=dense,
            slot_sums1=sums,
            backend=self.backend,
        )

    def _check_plain_sum(self, total: dict[str, RingArray]) -> None:
        """Add the payloads up in the open."""
        ring = self.task.ring
        rows, dense = np.zeros_like(total["rows"]), np.zeros_like(total["dense"])
        for session in self.case["sessions"]:
            for item, row in zip(session["slot_items"], session["payload"], strict=True):
                if item < 0:
                    assert not any(raw(row))
                else:
                    rows[item] += elements(row, ring)
            dense += elements(session["dense_elements"], ring)
        assert self._written(rows, dense) == self._written(**total)

    def _placement(self, case: Case) -> Placement:
        items, leaves = numbers(case["slot_items"]), numbers(case["slot_leaves"])
        order, per_bin = numbers(self.case["order"]), self.task.geometry.slots_per_bin
        for slot, item in enumerate(items):
            assert item in (-1, order[slot // per_bin, leaves[slot]])
        return Placement(items=items, leaves=leaves, truncated=case["truncated"])

    def _updates(self, case: Case) -> npt.NDArray[np.float64]:
        values = [[float.fromhex(value) for value in row] for row in case["updates"]]
        return np.array(values, dtype=np.float64).reshape(len(case["items"]), self.task.row_width)

    def _dense(self, case: Case) -> npt.NDArray[np.float64]:
        return np.array([float.fromhex(value) for value in case["dense"]], dtype=np.float64)


def check_session(case: Case, backend: Backend) -> None:
    Round(case, backend).check()
