"""One party's arithmetic in one round: answers to keys, and its share of the sum. No I/O, no memory of sessions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secemb_shared import reading, secure_sum, writing
from secemb_shared.dpf import Backend, HeldKeys, RingArray, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import LengthError
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, decode_keys, decode_sum_share, decode_update, encode_answer
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import Sizes, master_seed, public_keys_digest, public_update_digest, sum_share_bytes
from secemb_shared.messages.spec import TRAIN
from secemb_shared.secure_sum import SUM_RING


@dataclass(frozen=True, slots=True, repr=False)
class Share:
    """One party's share of the sum over a set of sessions; what a round does not add up is empty."""

    rows: RingArray  # (items, width)
    dense: RingArray  # (dense size,)
    sums: RingArray = field(default_factory=lambda: np.zeros(0, dtype=SUM_RING.dtype))  # (sum size,)

    @classmethod
    def empty(cls, round_: RoundSpec) -> "Share":
        """Return the share of no session at all."""
        task, trains = round_.task, round_.kind == TRAIN
        rows = writing.empty_sums(round_) if trains else np.zeros((0, task.row_width), dtype=task.ring.dtype)
        dense = np.zeros(task.dense_size if trains else 0, dtype=task.ring.dtype)
        return cls(rows, dense, np.zeros(round_.sum_size, dtype=SUM_RING.dtype))

    def encode(self) -> bytes:
        """Return the numbers as they travel and are stored: rows, dense part, sums, little-endian."""
        parts = (self.rows, self.dense, self.sums)
        return b"".join(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data for part in parts)

    @classmethod
    def decode(cls, round_: RoundSpec, data: bytes) -> "Share":
        """Read a share of this round; any other length is refused."""
        shape = cls.empty(round_)
        sizes = [part.nbytes for part in (shape.rows, shape.dense, shape.sums)]
        if len(data) != sum(sizes):
            raise LengthError(f"a share of this round has exactly {sum(sizes)} bytes")
        rows, dense, sums = np.split(np.frombuffer(data, dtype=np.uint8), np.cumsum(sizes)[:2])
        return cls(
            _numbers(rows, shape.rows).reshape(shape.rows.shape),
            _numbers(dense, shape.dense),
            _numbers(sums, shape.sums),
        )

    def __add__(self, other: "Share") -> "Share":
        """Return the plain sum from both parties' shares."""
        return Share(self.rows + other.rows, self.dense + other.dense, self.sums + other.sums)


def _numbers(data: RingArray, like: RingArray) -> RingArray:
    return np.require(data.view(like.dtype.newbyteorder("<")).astype(like.dtype), requirements=["A", "C"])


class Evaluation:
    """What one party computes in one round, given the model that the round reads."""

    def __init__(self, round_: RoundSpec, party: int, tagged: Words32, backend: Backend | None = None) -> None:
        self.round, self.party, self.tagged = round_, party, tagged
        self._backend = backend or default_backend()

    def check_keys(self, session_id: bytes, data: bytes) -> bytes:
        """Refuse anything but a KEYS message of this session; return the digest of its public part."""
        decode_keys(self.round, session_id, self.party, data, self._backend)
        return public_keys_digest(data)

    def check_update(self, session_id: bytes, data: bytes) -> bytes:
        """Refuse anything but this session's upload; return the digest of its public part."""
        if self.round.kind == TRAIN:
            decode_update(self.round, session_id, self.party, data)
            return public_update_digest(self.round, data)
        decode_sum_share(self.round, session_id, self.party, data)
        return digest(b"")  # the two parties get nothing alike

    def answer(self, session_id: bytes, data: bytes) -> bytes:
        """Return the ANSWER to a KEYS message: the same for the same bytes, always."""
        held = decode_keys(self.round, session_id, self.party, data, self._backend)
        words = reading.answer(self.round, held, self.tagged, self._backend)
        return encode_answer(self.round, session_id, self.party, words[0])

    def add(self, sessions: Sequence[tuple[bytes, bytes, bytes]], share: Share) -> None:
        """Add these sessions (id, KEYS, upload) to the share in place."""
        if self.round.kind != TRAIN:
            for session_id, _, upload in sessions:
                self._add_sum(session_id, upload, share.sums)
            return
        held = [decode_keys(self.round, name, self.party, keys, self._backend) for name, keys, _ in sessions]
        updates = [decode_update(self.round, name, self.party, upload) for name, _, upload in sessions]
        words = np.stack([update[0] for update in updates])
        writing.accumulate(self.round, HeldKeys.together(held), words, share.rows, self._backend)
        for (name, keys, _), (_, dense) in zip(sessions, updates, strict=True):
            self._add_dense(name, keys, dense, share.dense)

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


def upload_bytes(round_: RoundSpec, party: int) -> int:
    """Return the exact length of a session's upload to this party."""
    return Sizes.of(round_.task).update[party] if round_.kind == TRAIN else sum_share_bytes(round_, party)
