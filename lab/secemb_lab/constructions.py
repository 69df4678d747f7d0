"""The paper's ablation behind one interface: the savings of each step, measured on the same kernel.

    Init        a key for every element of every row           (paper, "Initial Construction")
    RowEncoded  a key for every row                            (paper, "Row-wise Encoding")
    PathShared  one more correction word on the path of the read: this is SecEmb
    FullMatrix  no point functions: the whole table down, two additive shares of the whole update up

The device half takes a placement, so that only the sharing is timed. All of them read rows by XOR of float32 bits
(the paper's Init and RowEncoded read in fixed point), so they differ only in the write. Their dense part is zeros. For
measurement only: devices and servers use `PathShared` through `secemb_sdk.round.session` and
`secemb_party.evaluation`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secemb_shared import row_access, secure_sum
from secemb_shared.dpf import Backend, HeldKeys, PathSecret, RingArray, SessionKeys, expand_roots, leaf_corrections
from secemb_shared.dpf.backend import LeafTable, Words32
from secemb_shared.labels import Purpose
from secemb_shared.layout import Placement
from secemb_shared.messages import RoundSpec, codec
from secemb_shared.randomness import RandomBytes, secure_bytes

Messages = tuple[bytes, bytes]  # to or from server 0 and server 1


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """A device between its read and its write."""

    session_id: bytes
    placement: Placement
    secret: PathSecret
    requests: Messages


@dataclass(frozen=True, slots=True, repr=False)
class Received:
    """The data that one server has of one device at the end of a round."""

    session_id: bytes
    request: bytes
    update: bytes


class Construction(ABC):
    """One way to read rows and to add to them without revealing which."""

    name: ClassVar[str]

    def __init__(self, round_: RoundSpec, backend: Backend, random_bytes: RandomBytes = secure_bytes) -> None:
        self.round, self.backend, self.random_bytes = round_, backend, random_bytes

    def ask(self, placement: Placement) -> Asked:
        """Return the device's read requests; here, one path for each slot."""
        session_id = self.random_bytes(16)
        requests, secret = self._paths(session_id, placement)
        return Asked(session_id, placement, secret, requests)

    def answer(self, party: int, session_id: bytes, request: bytes, tagged: Words32) -> bytes:
        """Return a server's answer to one read request."""
        held = codec.decode_keys(self.round, session_id, party, request, self.backend)
        words = row_access.answer(self.round, held, tagged, self.backend)
        return codec.encode_answer(self.round, session_id, party, words[0])

    @abstractmethod
    def write(self, asked: Asked, payload: RingArray) -> Messages:
        """Return the device's update messages; `payload` is (slots, width), zeros for padding."""

    @abstractmethod
    def add(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        """Add several devices' updates to a server's sums (items, width) in place."""

    def _paths(self, session_id: bytes, placement: Placement) -> tuple[Messages, PathSecret]:
        geometry, label = self.round.task.geometry, self.round.label(session_id)
        seeds = self.random_bytes(16), self.random_bytes(16)
        roots = [expand_roots(label, seed, geometry.slots, self.backend) for seed in seeds]
        words, leaf0, leaf1 = self.backend.generate(
            SessionKeys.of(label), roots[0], roots[1], placement.leaves, geometry.depth
        )
        corrections = leaf_corrections(label, placement.leaves, (leaf0, leaf1), self.backend)
        first, second = (
            codec.encode_keys(self.round, session_id, party, seed, words, corrections)
            for party, seed in enumerate(seeds)
        )
        return (first, second), PathSecret(leaf0, leaf1)

    def _words(self, session_id: bytes, secret: PathSecret, payload: RingArray) -> Messages:
        label = self.round.label(session_id)
        words = row_access.correction_words(secret, label, payload, self.backend)
        none = np.zeros(self.round.task.dense_size, dtype=payload.dtype)
        first = codec.encode_update(self.round, session_id, 0, words, none)
        return first, codec.encode_update(self.round, session_id, 1, words, None)

    def _accumulate(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        held = [codec.decode_keys(self.round, one.session_id, party, one.request, self.backend) for one in received]
        words = [codec.decode_update(self.round, one.session_id, party, one.update)[0] for one in received]
        row_access.accumulate(self.round, HeldKeys.together(held), np.stack(words), sums, self.backend)


class PathShared(Construction):
    """SecEmb: the update reuses the path of the read."""

    name = "SecEmb"

    def write(self, asked: Asked, payload: RingArray) -> Messages:
        """Return one correction word a slot."""
        return self._words(asked.session_id, asked.secret, payload)

    def add(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        """Evaluate the stored paths once more, with the correction words."""
        self._accumulate(party, received, sums)


class RowEncoded(Construction):
    """SecEmb-RowEnc: a second path for every row."""

    name = "SecEmb-RowEnc"

    def write(self, asked: Asked, payload: RingArray) -> Messages:
        """Return a fresh path and its correction word for every slot."""
        session_id = _writing_id(asked.session_id)
        keys, secret = self._paths(session_id, asked.placement)
        words = self._words(session_id, secret, payload)
        return keys[0] + words[0], keys[1] + words[1]

    def add(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        """Evaluate the fresh paths."""
        length = codec.Sizes.of(self.round.task).keys
        fresh = [Received(_writing_id(one.session_id), one.update[:length], one.update[length:]) for one in received]
        self._accumulate(party, fresh, sums)


class Init(Construction):
    """SecEmb-Init: a path for every element of every row."""

    name = "SecEmb-Init"

    def write(self, asked: Asked, payload: RingArray) -> Messages:
        """Return seed, correction words and payload words of width · slots paths, element by element."""
        geometry, label = self.round.task.geometry, self.round.label(_writing_id(asked.session_id))
        paths = self.round.task.row_width * geometry.slots
        leaves = np.tile(asked.placement.leaves, self.round.task.row_width)
        seeds = self.random_bytes(16), self.random_bytes(16)
        roots = [expand_roots(label, seed, paths, self.backend) for seed in seeds]
        keys = SessionKeys.of(label)
        words, leaf0, leaf1 = self.backend.generate(keys, roots[0], roots[1], leaves, geometry.depth)
        elements = np.ascontiguousarray(payload.T).reshape(-1, 1)
        body = codec.pack_words(words) + self.backend.convert_gen(keys.convert, leaf0, leaf1, elements).tobytes()
        dense = np.zeros(self.round.task.dense_size, dtype=payload.dtype)  # server 1 derives its share from a seed
        secure_sum.add_seeded(label.key(Purpose.SUM_SHARE, seeds[1]), dense, self.backend)
        return seeds[0] + body + dense.tobytes(), seeds[1] + body

    def add(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        """Evaluate every element's paths into its own column."""
        for one in received:
            self._add_one(party, one, sums)

    def _add_one(self, party: int, one: Received, sums: RingArray) -> None:
        task, label = self.round.task, self.round.label(_writing_id(one.session_id))
        slots, depth = task.geometry.slots, task.geometry.depth
        paths = task.row_width * slots
        size = codec.packed_bytes(depth, paths)
        words = codec.unpack_words(memoryview(one.update)[16 : 16 + size], depth, paths)
        values = np.frombuffer(one.update, dtype=task.ring.dtype, count=paths, offset=16 + size).copy()
        roots = expand_roots(label, one.update[:16], paths, self.backend)
        held = HeldKeys.of(party, SessionKeys.of(label), roots, words)
        for column in range(task.row_width):
            some = slice(column * slots, (column + 1) * slots)
            part = HeldKeys(party, held.keys, held.roots[:, some], held.left[:, :, some], held.right[:, :, some])
            sums[:, column : column + 1] += self._column(part, self.round.leaf_table, values[some])

    def _column(self, held: HeldKeys, table: LeafTable, values: RingArray) -> RingArray:
        column = np.zeros((self.round.task.items, 1), dtype=values.dtype)
        self.backend.accumulate(held, table, values.reshape(1, -1, 1), column)
        return column


class FullMatrix(Construction):
    """Two-server additive sharing of the whole update, the paper's Secure FedRec: both shares are sent in full."""

    name = "full matrix"

    def ask(self, placement: Placement) -> Asked:
        """Send no request: the whole table is sent anyway."""
        none = np.empty((0, 16), dtype=np.uint8)
        return Asked(self.random_bytes(16), placement, PathSecret(none, none), (b"", b""))

    def answer(self, party: int, session_id: bytes, request: bytes, tagged: Words32) -> bytes:
        """Return the whole table, from server 0 only."""
        return tagged[:, :-1].tobytes() if party == 0 else b""

    def write(self, asked: Asked, payload: RingArray) -> Messages:
        """Return two shares of the whole matrix and the dense part: a random one, and the update minus it."""
        task = self.round.task
        numbers = task.items * task.row_width
        whole = np.zeros(numbers + task.dense_size, dtype=task.ring.dtype)
        items, rows = asked.placement.collect(payload)
        whole[:numbers].reshape(task.items, task.row_width)[items] = rows
        key = self.round.label(asked.session_id).key(Purpose.SUM_SHARE, self.random_bytes(16))
        mask = np.zeros_like(whole)
        secure_sum.add_seeded(key, mask, self.backend)
        return np.subtract(whole, mask, out=whole).tobytes(), mask.tobytes()

    def add(self, party: int, received: Sequence[Received], sums: RingArray) -> None:
        """Add the shares directly."""
        for one in received:
            np.add(sums, np.frombuffer(one.update, sums.dtype, sums.size).reshape(sums.shape), out=sums)


ABLATION: tuple[type[Construction], ...] = (Init, RowEncoded, PathShared, FullMatrix)


def _writing_id(session_id: bytes) -> bytes:
    """Return another session id, so that the second set of paths has its own keys."""
    return bytes(byte ^ 0xFF for byte in session_id)
