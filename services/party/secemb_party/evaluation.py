"""One party's computations in one round: answers to keys, and its share of the sum, including noise.

This module does no I/O and does not remember sessions: the services' engines and the simulation both use it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from secemb_party.errors import BudgetSpentError
from secemb_shared import row_access, secure_sum
from secemb_shared.dpf import Backend, Blocks, HeldKeys, RingArray, SlotChecks, default_backend, fingerprint_keys
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import LengthError, SessionError
from secemb_shared.labels import Label, Purpose
from secemb_shared.messages import RoundSpec, decode_keys, decode_sum_share, decode_update, encode_answer
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import (
    Sizes,
    master_seed,
    norm_parts,
    public_keys_digest,
    public_update_digest,
    slot_checks,
    sum_share_bytes,
)
from secemb_shared.messages.spec import TRAIN
from secemb_shared.norm import Held, Statement, Verifier
from secemb_shared.privacy import add_noise
from secemb_shared.randomness import RandomBytes, secure_bytes
from secemb_shared.ring import Ring
from secemb_shared.row_words import Rows
from secemb_shared.secure_sum import SUM_RING

One = TypeVar("One")
BATCH = 32  # sessions evaluated together: enough to benefit from a bin's cached sums, few enough to bound memory


@dataclass(frozen=True, slots=True, repr=False)
class KeysMessage:
    """The KEYS message of one session."""

    session_id: bytes
    body: bytes


@dataclass(frozen=True, slots=True, repr=False)
class ReadKeys:
    """A KEYS message that fits its round, decoded."""

    message: KeysMessage
    held: HeldKeys
    checks: SlotChecks | None  # only where updates follow


@dataclass(frozen=True, slots=True, repr=False)
class SessionBodies:
    """The two bodies of a complete session."""

    session_id: bytes
    keys: bytes
    update: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Share:
    """One party's share of the sum over a set of sessions; parts that a round does not add up are empty."""

    rows: RingArray  # (items, width)
    dense: RingArray  # (dense size,)
    sums: RingArray = field(default_factory=lambda: np.zeros(0, dtype=SUM_RING.dtype))  # (sum size,)
    whole: npt.NDArray[np.uint8] | None = None  # the memory of all parts, if they follow each other
    ring: Ring = field(default_factory=Ring)  # of the rows and the dense part

    @classmethod
    def empty(cls, round_: RoundSpec, *, with_rows: bool = True) -> "Share":
        """Return the share of a sum over no sessions; its parts follow each other in memory.

        Without rows it is for a sum whose rows are added up elsewhere.
        """
        task, trains = round_.task, round_.kind == TRAIN
        rows = task.items * task.row_width if trains and with_rows else 0
        dense = task.dense_size if trains else 0
        sizes = rows * task.ring.dtype.itemsize, dense * task.ring.dtype.itemsize
        whole = np.zeros(sum(sizes) + round_.sum_size * SUM_RING.element_bytes, dtype=np.uint8)
        parts = np.split(whole, np.cumsum(sizes))
        return cls(
            parts[0].view(task.ring.dtype).reshape(-1, task.row_width),
            parts[1].view(task.ring.dtype),
            parts[2].view(SUM_RING.dtype),
            whole,
            task.ring,
        )

    def encode(self) -> bytes:
        """Return the numbers as transmitted and stored: rows, dense part, sums, little-endian."""
        return b"".join((self.ring.pack(self.rows), self.ring.pack(self.dense), SUM_RING.pack(self.sums)))

    def memory(self) -> memoryview:
        """Return what `encode` returns, without a copy on common machines; the share must not change any more."""
        if self.whole is None or self.ring.is_packed or sys.byteorder != "little":
            return memoryview(self.encode())
        return self.whole.data

    @classmethod
    def decode(cls, round_: RoundSpec, data: bytes) -> "Share":
        """Read a share of this round; any other length is refused."""
        shape, ring = cls.empty(round_), round_.task.ring
        sizes = [shape.rows.size * ring.element_bytes, shape.dense.size * ring.element_bytes, shape.sums.nbytes]
        if len(data) != sum(sizes):
            raise LengthError(f"a share of this round must be exactly {sum(sizes)} bytes")
        rows, dense, sums = np.split(np.frombuffer(data, dtype=np.uint8), np.cumsum(sizes)[:2])
        return cls(ring.unpack(rows).reshape(shape.rows.shape), ring.unpack(dense), SUM_RING.unpack(sums), ring=ring)

    def __add__(self, other: "Share") -> "Share":
        """Return the plaintext sum from both parties' shares."""
        return Share(self.rows + other.rows, self.dense + other.dense, self.sums + other.sums, ring=self.ring)


def blur(round_: RoundSpec, share: Share, random_bytes: RandomBytes = secure_bytes) -> None:
    """Add fresh noise to every number of a share in place, as much as the task requires against the other server."""
    privacy = round_.task.privacy
    if privacy is None:
        return
    if round_.kind == TRAIN:
        add_noise(share.rows, variance=privacy.rows.variance, random_bytes=random_bytes)
        add_noise(share.dense, variance=privacy.dense.variance, random_bytes=random_bytes)
        return
    noise = privacy.sums(round_.kind)
    if noise is None:
        raise BudgetSpentError("the task has no privacy budget for rounds of this kind")
    add_noise(share.sums, variance=noise.variance, random_bytes=random_bytes)


class Slots(Protocol):
    """The evaluation of all slots of a round: here, or by ranges in other processes."""

    def answer(self, held: HeldKeys) -> Words32:
        """Return the shares of the requested rows: (sessions, slots, width + 1)."""

    def answer_checked(self, held: HeldKeys, checks: SlotChecks, keys: Blocks) -> tuple[Words32, Blocks]:
        """Return the same, and a fingerprint of each session's leaves: (sessions, 16)."""


# Adds the updates of sessions to sums of rows; fills the last argument with what each slot adds, if there is one.
Accumulate = Callable[[HeldKeys, RingArray, RingArray | None], None]


class WholeTable:
    """All slots of a round, evaluated in this process."""

    def __init__(self, round_: RoundSpec, tagged: Words32, backend: Backend) -> None:
        self.tagged, self._round, self._backend = tagged, round_, backend

    def answer(self, held: HeldKeys) -> Words32:
        """Return the shares of the requested rows."""
        return row_access.answer(self._round, held, self.tagged, self._backend)

    def answer_checked(self, held: HeldKeys, checks: SlotChecks, keys: Blocks) -> tuple[Words32, Blocks]:
        """Return the same, and a fingerprint of each session's leaves."""
        return self._backend.answer_checked(held, self._round.leaf_table, self.tagged, checks, keys)


class Evaluation:
    """One party's computations in one round, given the model that the round reads."""

    def __init__(
        self,
        round_: RoundSpec,
        party: int,
        rows: Words32 | Slots,
        backend: Backend | None = None,
        *,
        check_key: bytes | None = None,
        batch: int = BATCH,
    ) -> None:
        """Evaluate with the model's tagged rows, or wherever the slots of this round are evaluated."""
        self.round, self.party, self._batch = round_, party, batch
        self._backend, self._check_key = backend or default_backend(), check_key
        self.slots = WholeTable(round_, rows, self._backend) if isinstance(rows, np.ndarray) else rows
        self._verifier = self._make_verifier()

    @classmethod
    def prepare(
        cls,
        round_: RoundSpec,
        party: int,
        rows: Rows,
        backend: Backend | None = None,
        *,
        check_key: bytes | None = None,
    ) -> Self:
        """Tag the model's rows, and assign the items to bins.

        `check_key` is the two servers' shared secret for checking sessions; nothing can be checked without it.
        """
        _ = round_.leaf_table  # stored in the round from now on
        return cls(round_, party, row_access.tag_rows(round_, rows, backend), backend, check_key=check_key)

    def _make_verifier(self) -> Verifier | None:
        shape = self.round.task.norm_shape
        if shape is None or self._check_key is None or self.round.kind != TRAIN:
            return None
        return Verifier(shape, self._place, party=self.party, check_key=self._check_key, backend=self._backend)

    @property
    def _place(self) -> Label:
        return Label(self.round.task.task_id, self.round.number)

    def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Return the ANSWER to each KEYS message: always the same for the same bytes."""
        return [found for some in self._batches(batch) for found in self.answer_read(self.read(some))]

    def accept(self, batch: Sequence[KeysMessage]) -> list[tuple[bytes, bytes]]:
        """Return the ANSWER to each KEYS message, and a digest that must be the same for both parties.

        The digest covers the public part and, where updates follow, a fingerprint of all leaves: it is equal if, in
        each slot, the two parties' trees differ in at most one leaf.
        """
        return [found for some in self._batches(batch) for found in self.accept_read(self.read(some))]

    def read(self, batch: Sequence[KeysMessage]) -> list[ReadKeys]:
        """Decode KEYS messages; one that does not fit the round is refused."""
        held = [self._held(one.session_id, one.body) for one in batch]
        if self.round.kind != TRAIN:
            return [ReadKeys(one, keys, None) for one, keys in zip(batch, held, strict=True)]
        checks = [slot_checks(self.round, one.session_id, one.body) for one in batch]
        return [ReadKeys(*one) for one in zip(batch, held, checks, strict=True)]

    def answer_read(self, batch: Sequence[ReadKeys]) -> list[bytes]:
        """Return the ANSWER to each decoded message, in one pass."""
        return self._encoded(batch, self.slots.answer(HeldKeys.together([one.held for one in batch])))

    def accept_read(self, batch: Sequence[ReadKeys]) -> list[tuple[bytes, bytes]]:
        """Return the ANSWER to each decoded message and its digest, in one pass."""
        public = [public_keys_digest(one.message.body) for one in batch]
        if self.round.kind != TRAIN:
            return list(zip(self.answer_read(batch), map(digest, public), strict=True))
        if self._check_key is None:
            raise SessionError("this round has no check key, so its sessions cannot be checked")
        held = HeldKeys.together([one.held for one in batch])
        checks = SlotChecks.together([one.checks for one in batch if one.checks is not None])
        words, prints = self.slots.answer_checked(held, checks, fingerprint_keys(self._place, self._check_key))
        alike = [digest(own + bytes(found)) for own, found in zip(public, prints, strict=True)]
        return list(zip(self._encoded(batch, words), alike, strict=True))

    def _encoded(self, batch: Sequence[ReadKeys], words: Words32) -> list[bytes]:
        ids = [one.message.session_id for one in batch]
        return [encode_answer(self.round, own, self.party, some) for own, some in zip(ids, words, strict=True)]

    def add(self, sessions: Sequence[SessionBodies], share: Share, into: Accumulate | None = None) -> list[bytes]:
        """Add these sessions to the share in place; return this party's message to the other about each of them.

        The messages are empty if updates are not checked. `into` adds up the rows if the share has none.
        """
        return self._add(sessions, share, into or self._into(share), self._verifier)

    def _add(
        self, sessions: Sequence[SessionBodies], share: Share, into: Accumulate, verifier: Verifier | None
    ) -> list[bytes]:
        told: list[bytes] = []
        for some in self._batches(sessions):
            if self.round.kind == TRAIN:
                told += self._add_updates(some, share, into, verifier)
            else:
                for one in some:
                    self._add_sum(one.session_id, one.update, share.sums)
                    told.append(b"")
        return told

    def _into(self, share: Share) -> Accumulate:
        def accumulate(held: HeldKeys, words: RingArray, slot_sums: RingArray | None) -> None:
            row_access.accumulate(self.round, held, words, share.rows, self._backend, slot_sums=slot_sums)

        return accumulate

    def remove(self, sessions: Sequence[SessionBodies], share: Share, out_of: Accumulate | None = None) -> None:
        """Subtract sessions that were added before from the share in place; `out_of` subtracts the rows elsewhere."""
        removed = Share.empty(self.round, with_rows=out_of is None)
        self._add(sessions, removed, out_of or self._into(removed), None)
        for part, own in ((share.rows, removed.rows), (share.dense, removed.dense), (share.sums, removed.sums)):
            np.subtract(part, own, out=part)

    def _add_updates(
        self, sessions: Sequence[SessionBodies], share: Share, into: Accumulate, verifier: Verifier | None
    ) -> list[bytes]:
        held = HeldKeys.together([self._held(one.session_id, one.keys) for one in sessions])
        updates = [decode_update(self.round, one.session_id, self.party, one.update) for one in sessions]
        words = np.stack([update[0] for update in updates])
        slot_sums = None if verifier is None else np.empty_like(words)
        into(held, words, slot_sums)
        for one, (_, dense) in zip(sessions, updates, strict=True):
            self._add_dense(one.session_id, one.keys, dense, share.dense)
        if verifier is None or slot_sums is None:
            return [b""] * len(sessions)
        found = zip(sessions, updates, slot_sums, strict=True)
        return [self._tell(verifier, one, *update, sums) for one, update, sums in found]

    def _tell(
        self, verifier: Verifier, one: SessionBodies, words: RingArray, dense: RingArray | None, slot_sums: RingArray
    ) -> bytes:
        """Return this party's message to the other about the length of one session's update."""
        public, share = norm_parts(self.round, self.party, one.update)
        return verifier.message(
            Held(
                statement=Statement(
                    self.round.label(one.session_id), self.round.task.ring, public_keys_digest(one.keys), words
                ),
                public=public,
                seed=master_seed(one.keys),
                slot_sums=slot_sums,
                dense_share=dense,
                norm_share=share,
            )
        )

    def _batches(self, sequence: Sequence[One]) -> Iterator[Sequence[One]]:
        return (sequence[first : first + self._batch] for first in range(0, len(sequence), self._batch))

    def _held(self, session_id: bytes, data: bytes) -> HeldKeys:
        return decode_keys(self.round, session_id, self.party, data, self._backend)

    def _add_dense(self, session_id: bytes, keys: bytes, explicit: RingArray | None, sums: RingArray) -> None:
        if explicit is not None:
            np.add(sums, explicit, out=sums)
            return
        key = self.round.label(session_id).key(Purpose.DENSE_SHARE, master_seed(keys))
        secure_sum.add_seeded(key, sums, self._backend)

    def _add_sum(self, session_id: bytes, upload: bytes, sums: RingArray) -> None:
        share = decode_sum_share(self.round, session_id, self.party, upload)
        if isinstance(share, bytes):
            key = self.round.label(session_id).key(Purpose.SUM_SHARE, share)
            secure_sum.add_seeded(key, sums, self._backend)
        else:
            np.add(sums, share, out=sums)


def check_update(round_: RoundSpec, party: int, session_id: bytes, data: bytes) -> bytes:
    """Refuse anything but this session's upload to this party; return the digest of its public part."""
    if round_.kind == TRAIN:
        decode_update(round_, session_id, party, data)
        return public_update_digest(round_, data)
    decode_sum_share(round_, session_id, party, data)
    return digest(b"")  # nothing is the same for both parties


def upload_bytes(round_: RoundSpec, party: int) -> int:
    """Return the exact length of a session's upload to this party."""
    return Sizes.of(round_.task).update[party] if round_.kind == TRAIN else sum_share_bytes(round_, party)


def share_bytes(round_: RoundSpec) -> int:
    """Return the exact length of a share of this round."""
    task, trains = round_.task, round_.kind == TRAIN
    numbers = task.items * task.row_width + task.dense_size if trains else 0
    return numbers * task.ring.element_bytes + round_.sum_size * SUM_RING.element_bytes
