"""The four binary messages of a session. All integers little-endian; every length follows from the round.

Each begins with an envelope of 24 bytes, which identifies the message and what it was made for:

    offset  bytes
    0       6     "secemb"
    6       1     protocol version, 2
    7       1     kind
    8       16    binding: of the round's specification, the session, the kind and the party

The receiver knows the round, so it checks the whole envelope and the exact length before it reads the rest.

KEYS to party b       16                      master seed of party b        (private)
                      depth · slots · 16      left correction words         (public, the same for both)
                      ceil(depth · slots / 8) right control bits            (public)
                      slots · 48              corrections of the leaf hashes (public)
ANSWER from party b   slots · (words + 1) · 4 rows and their tags, XOR-shared
UPDATE to party b     slots · width · element correction words              (public)
                      96                      commitments of the norm proof (public; where the task has a norm bound)
                      dense · element         explicit dense share          (party 0 only, private)
                      as the bound says       share of the norm proof       (party 0 only, private)
SUM_SHARE to party b  sum size · 8            explicit share, private       (party 0)
                      16                      seed of the stream, private   (party 1)

Arrays are in C order: level by level and within a level slot by slot for the keys, slot by slot for rows.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from secemb_shared.dpf import (
    HASH_BYTES,
    Backend,
    Blocks,
    CorrectionWords,
    HeldKeys,
    RingArray,
    SessionKeys,
    SlotChecks,
    expand_roots,
)
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import BindingError, EncodingError, KindError, LengthError, SpecError, VersionError
from secemb_shared.labels import Purpose
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.spec import RoundSpec, TaskSpec
from secemb_shared.norm import PUBLIC_BYTES, Proof
from secemb_shared.secure_sum import SUM_RING

SEED_BYTES = 16
_SEALED = 136  # key id and box in each relayed message of a training round: see `relayed`
_MARKS = 32  # receipt and confirmation at the end of a relayed answer
EXPLICIT_PARTY = 0  # gets the explicit share of a secure sum; the other expands a seed
MAGIC = b"secemb"
VERSION = 2
ENVELOPE_BYTES = 24


class Kind(IntEnum):
    """The kind of a message."""

    KEYS = 1
    ANSWER = 2
    UPDATE = 3
    SUM_SHARE = 4
    RELAYED_KEYS = 5
    RELAYED_ANSWER = 6
    RELAYED_UPLOAD = 7


def envelope(round_: RoundSpec, session_id: bytes, kind: Kind, party: int) -> bytes:
    """Return the envelope of one message to or from `party`."""
    if party not in (0, 1):
        raise SpecError("party must be 0 or 1")
    context = round_.digest + bytes([kind, party])
    binding = round_.label(session_id).derive(Purpose.BINDING, context)[:16]
    return MAGIC + bytes([VERSION, kind]) + binding


def open_envelope(data: bytes | memoryview, expected: bytes, body_bytes: int) -> memoryview:
    """Return the body of a message, or raise an error that says what is wrong with it."""
    if len(data) != ENVELOPE_BYTES + body_bytes:
        raise LengthError(f"expected exactly {ENVELOPE_BYTES + body_bytes} bytes, got {len(data)}")
    view = memoryview(data)
    if view[:6] != MAGIC:
        raise EncodingError("not a SecEmb message")
    if view[6] != VERSION:
        raise VersionError(f"unsupported protocol version: this side speaks version {VERSION}; upgrade the older side")
    if view[7] != expected[7]:
        raise KindError(f"expected a message of kind {Kind(expected[7]).name}")
    if view[8:ENVELOPE_BYTES] != expected[8:]:
        raise BindingError("the message is for another task, round, session, purpose or party")
    return view[ENVELOPE_BYTES:]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The exact length of every message of a task, envelopes included."""

    keys: int
    answer: int
    update: tuple[int, int]  # by party

    @classmethod
    def of(cls, task: TaskSpec) -> "Sizes":
        """Return the lengths that the task's public parameters fix."""
        slots, element = task.geometry.slots, task.ring.element_bytes
        public = public_update_bytes(task)
        private = task.dense_size * element + _norm_share_bytes(task)
        return cls(
            keys=ENVELOPE_BYTES + SEED_BYTES + _public_keys_bytes(task),
            answer=ENVELOPE_BYTES + slots * (task.row_words + 1) * 4,
            update=(ENVELOPE_BYTES + public + private, ENVELOPE_BYTES + public),
        )

    @property
    def upload(self) -> int:
        """Return how many bytes a device sends in a round with the direct transport."""
        return 2 * self.keys + sum(self.update)

    @property
    def download(self) -> int:
        """Return how many bytes a device receives in a round with the direct transport."""
        return 2 * self.answer

    @property
    def relayed_upload(self) -> int:
        """Return how many bytes a device sends in a round with the relayed transport."""
        return self.keys + self.update[EXPLICIT_PARTY] + 2 * _SEALED

    @property
    def relayed_download(self) -> int:
        """Return how many bytes a device receives in a round with the relayed transport."""
        return self.answer + _MARKS


def packed_bytes(depth: int, slots: int) -> int:
    """Return the size of packed correction words: 129 bits per level and slot, the total rounded up to whole bytes."""
    return depth * slots * 16 + -(-depth * slots // 8)


def pack_words(words: CorrectionWords) -> bytes:
    """Return the public part of the keys: all left words, then the right control bits, lowest bit first."""
    return b"".join((words.left.data, np.packbits(words.right, bitorder="little").data))


def unpack_words(data: memoryview, depth: int, slots: int) -> CorrectionWords:
    """Reverse `pack_words`; bits after the last one must be zero, so that there is only one encoding."""
    count = depth * slots
    packed = np.frombuffer(data, dtype=np.uint8, offset=count * 16)
    if packed.size and int(packed[-1]) >> ((count - 1) % 8 + 1):
        raise EncodingError("padding bits after the last control bit must be zero")
    return CorrectionWords(
        np.frombuffer(data, np.uint8, count * 16).reshape(depth, slots, 16),
        np.unpackbits(packed, count=count, bitorder="little").reshape(depth, slots),
    )


def _public_keys_bytes(task: TaskSpec) -> int:
    return packed_bytes(task.geometry.depth, task.geometry.slots) + task.geometry.slots * HASH_BYTES


def encode_keys(
    round_: RoundSpec, session_id: bytes, party: int, seed: bytes, words: CorrectionWords, corrections: Blocks
) -> bytes:
    """Return the KEYS message for one party; `corrections` are those of the leaf hashes, (slots, 48)."""
    if len(seed) != SEED_BYTES:
        raise SpecError("a master seed must be 16 bytes")
    head = envelope(round_, session_id, Kind.KEYS, party)
    return b"".join((head, seed, pack_words(words), np.ascontiguousarray(corrections).data))


def decode_keys(
    round_: RoundSpec, session_id: bytes, party: int, data: bytes, backend: Backend | None = None
) -> HeldKeys:
    """Return the data that the party needs to evaluate the session."""
    geometry, label = round_.task.geometry, round_.label(session_id)
    expected = envelope(round_, session_id, Kind.KEYS, party)
    body = open_envelope(data, expected, SEED_BYTES + _public_keys_bytes(round_.task))
    packed = packed_bytes(geometry.depth, geometry.slots)
    words = unpack_words(body[SEED_BYTES : SEED_BYTES + packed], geometry.depth, geometry.slots)
    roots = expand_roots(label, bytes(body[:SEED_BYTES]), geometry.slots, backend)
    return HeldKeys.of(party, SessionKeys.of(label), roots, words)


def master_seed(data: bytes) -> bytes:
    """Return the seed in a KEYS message that `decode_keys` has accepted."""
    return data[ENVELOPE_BYTES : ENVELOPE_BYTES + SEED_BYTES]


def slot_checks(round_: RoundSpec, session_id: bytes, data: bytes) -> SlotChecks:
    """Return the data for checking leaves, from a KEYS message that `decode_keys` has accepted."""
    slots = round_.task.geometry.slots
    tail = np.frombuffer(data, np.uint8, offset=len(data) - slots * HASH_BYTES)
    return SlotChecks.of(round_.label(session_id), tail.reshape(slots, HASH_BYTES))


def public_keys_digest(data: bytes) -> bytes:
    """Return the SHA-256 of a KEYS message's public part, which must be the same for both parties."""
    return digest(data[ENVELOPE_BYTES + SEED_BYTES :])


def encode_answer(round_: RoundSpec, session_id: bytes, party: int, answer: Words32) -> bytes:
    """Return the ANSWER message from one party."""
    return b"".join((envelope(round_, session_id, Kind.ANSWER, party), _little(answer)))


def decode_answer(round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> Words32:
    """Return the (slots, row words + 1) words of one party's answer."""
    task = round_.task
    shape = (task.geometry.slots, task.row_words + 1)
    expected = envelope(round_, session_id, Kind.ANSWER, party)
    body = open_envelope(data, expected, shape[0] * shape[1] * 4)
    return _aligned(np.frombuffer(body, dtype="<u4").reshape(shape), np.dtype(np.uint32))


def encode_update(
    round_: RoundSpec,
    session_id: bytes,
    party: int,
    words: RingArray,
    dense_share: RingArray | None,
    proof: Proof | None = None,
) -> bytes:
    """Return the UPDATE message for one party; only party 0 gets an explicit dense share and a share of the proof."""
    if (dense_share is not None) != (party == EXPLICIT_PARTY):
        raise SpecError("only party 0 gets the explicit dense share")
    if (proof is None) != (round_.task.norm_shape is None):
        raise SpecError("an update must have a norm proof if and only if its task has a norm bound")
    public, share = (b"", b"") if proof is None else (proof.public, proof.share)
    head, ring = envelope(round_, session_id, Kind.UPDATE, party), round_.task.ring
    if dense_share is None:
        return b"".join((head, ring.pack(words), public))
    return b"".join((head, ring.pack(words), public, ring.pack(dense_share), share))


def decode_update(round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> tuple[RingArray, RingArray | None]:
    """Return the (slots, width) correction words and, for party 0, the explicit dense share."""
    task = round_.task
    expected = envelope(round_, session_id, Kind.UPDATE, party)
    body = open_envelope(data, expected, Sizes.of(task).update[party] - ENVELOPE_BYTES)
    shape, dense = (task.geometry.slots, task.row_width), public_update_bytes(task)
    words = task.ring.unpack(body[: update_words_bytes(task)]).reshape(shape)
    if party != EXPLICIT_PARTY:
        return words, None
    _, share = norm_parts(round_, party, data)
    if task.norm_shape is not None and share is not None:
        task.norm_shape.check_share(share)
    return words, task.ring.unpack(body[dense : dense + task.dense_size * task.ring.element_bytes])


def norm_parts(round_: RoundSpec, party: int, data: bytes) -> tuple[bytes, bytes | None]:
    """Return the commitments of the norm proof in an UPDATE message, and party 0's share of it."""
    start = ENVELOPE_BYTES + update_words_bytes(round_.task)
    public = data[start : ENVELOPE_BYTES + public_update_bytes(round_.task)]
    share = data[len(data) - _norm_share_bytes(round_.task) :]
    return public, share if party == EXPLICIT_PARTY else None


def public_update_digest(round_: RoundSpec, data: bytes) -> bytes:
    """Return the SHA-256 of an UPDATE message's public part, which must be the same for both parties."""
    return digest(memoryview(data)[ENVELOPE_BYTES : ENVELOPE_BYTES + public_update_bytes(round_.task)])


def public_update_bytes(task: TaskSpec) -> int:
    """Return the length of an UPDATE message's public part: correction words and commitments."""
    return update_words_bytes(task) + (PUBLIC_BYTES if task.norm_shape is not None else 0)


def update_words_bytes(task: TaskSpec) -> int:
    """Return the length of the correction words."""
    return task.geometry.slots * task.row_width * task.ring.element_bytes


def _norm_share_bytes(task: TaskSpec) -> int:
    return task.norm_shape.share_bytes if task.norm_shape is not None else 0


def encode_sum_share(round_: RoundSpec, session_id: bytes, party: int, share: RingArray | bytes) -> bytes:
    """Return the SUM_SHARE message: the round's numbers for party 0, the seed for party 1."""
    if isinstance(share, bytes) != (party != EXPLICIT_PARTY) or (isinstance(share, bytes) and len(share) != SEED_BYTES):
        raise SpecError("party 0 gets the explicit share and party 1 the 16-byte seed")
    body = share if isinstance(share, bytes) else _sum_numbers(round_, share)
    return b"".join((envelope(round_, session_id, Kind.SUM_SHARE, party), body))


def _sum_numbers(round_: RoundSpec, share: RingArray) -> bytes | memoryview:
    if share.shape != (round_.sum_size,) or share.itemsize != SUM_RING.element_bytes:
        raise SpecError(f"the secure sum of this round must have {round_.sum_size} numbers of {SUM_RING.bits} bits")
    return SUM_RING.pack(share)


def sum_share_bytes(round_: RoundSpec, party: int) -> int:
    """Return the exact length of a SUM_SHARE message."""
    body = round_.sum_size * SUM_RING.element_bytes if party == EXPLICIT_PARTY else SEED_BYTES
    return ENVELOPE_BYTES + body


def decode_sum_share(round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> RingArray | bytes:
    """Return the explicit share of the round's numbers (party 0) or the seed (party 1)."""
    expected = envelope(round_, session_id, Kind.SUM_SHARE, party)
    if party != EXPLICIT_PARTY:
        return bytes(open_envelope(data, expected, SEED_BYTES))
    body = open_envelope(data, expected, round_.sum_size * SUM_RING.element_bytes)
    return SUM_RING.unpack(body)


def _little(numbers: RingArray) -> memoryview:
    """Return the numbers' bytes as transmitted, copied only if this machine stores them differently."""
    return np.ascontiguousarray(numbers, dtype=numbers.dtype.newbyteorder("<")).data


def _aligned(numbers: RingArray, dtype: np.dtype[np.unsignedinteger]) -> RingArray:
    """Return the numbers in this machine's byte order and aligned, as the kernel requires."""
    return np.require(numbers.astype(dtype, copy=False), requirements=["C", "A"])
