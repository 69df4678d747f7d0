"""A device's part in one round, without I/O: it encodes and decodes messages, and a route sends them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secemb_shared import holds, row_access, secure_sum
from secemb_shared.dpf import (
    Backend,
    Blocks,
    PathSecret,
    RingArray,
    SessionKeys,
    default_backend,
    expand_roots,
    leaf_corrections,
)
from secemb_shared.errors import SessionError, SpecError
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.labels import Purpose
from secemb_shared.messages import (
    RoundSpec,
    decode_answer,
    decode_keys,
    encode_keys,
    encode_sum_share,
    encode_update,
    public_keys_digest,
)
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import EXPLICIT_PARTY, SEED_BYTES
from secemb_shared.messages.relayed import decode_relayed_answer
from secemb_shared.norm import Proof, Statement, prove
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes
from secemb_shared.row_words import Rows
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

SESSION_SEED_BYTES = 32
SESSION_BYTES = 16


class SeededBytes:
    """A `RandomBytes` that gives the same bytes in the same order: AES-256 in counter mode under the seed.

    A seed is used for one session, and reveals its paths.
    """

    __slots__ = ("_stream",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SESSION_SEED_BYTES:
            raise ValueError(f"a session seed must be {SESSION_SEED_BYTES} bytes")
        # The counter may start at zero: every seed is used for one stream only.
        self._stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def __repr__(self) -> str:
        return "<SeededBytes>"

    def __call__(self, count: int) -> bytes:
        """Return the next bytes of the stream."""
        return self._stream.update(bytes(count))


def session_id_of(seed: bytes) -> bytes:
    """Return the id that a session with this seed will draw: its first bytes."""
    return SeededBytes(seed)(SESSION_BYTES)


def generator_seed(random_bytes: RandomBytes) -> int:
    """Return a seed for NumPy, for initial weights, which are not part of the protocol."""
    return int.from_bytes(random_bytes(16), "little")


Messages = tuple[bytes, bytes]  # to server 0, to server 1


@dataclass(frozen=True, slots=True, repr=False)
class Marks:
    """The marks sent and stored with an upload; the holds that they are derived from are not stored."""

    macs: Messages  # prove to each server that the upload is from the device that made the keys
    receipt: bytes  # proves to the device that server 1 holds a relayed upload


class DeviceSession:
    """One device in one round: the rows it reads, and the updates it adds to them."""

    def __init__(
        self,
        round_: RoundSpec,
        items: Indices,
        *,
        random_bytes: RandomBytes = secure_bytes,
        backend: Backend | None = None,
    ) -> None:
        self.round = round_
        self.session_id = random_bytes(16)
        self._backend = backend or default_backend()
        self._placement = round_.layout.place(items, random_bytes)
        self._seeds = (random_bytes(SEED_BYTES), random_bytes(SEED_BYTES))
        self.keys, self._secret = self._open()
        self._random_bytes = random_bytes
        self.update: Messages | None = None  # the messages from `write`; a retry sends the same bytes

    def __repr__(self) -> str:
        return f"<DeviceSession of round {self.round.number}>"

    @cached_property
    def holds(self) -> tuple[bytes, bytes]:
        """Return the secrets that this device shares with each server but not with the other."""
        return hold_of(self.keys[0]), hold_of(self.keys[1])

    @cached_property
    def marks(self) -> Marks:
        """Return the marks of the upload that `write` made."""
        if self.update is None:
            raise SessionError("there is no upload yet; call write() first")
        place, digests = self.round.label(self.session_id), [digest(message) for message in self.update]
        first, second = (upload_mac(place, hold, one) for hold, one in zip(self.holds, digests, strict=True))
        return Marks((first, second), holds.receipt_of(place, self.holds[1], digests[1]))

    @property
    def truncated(self) -> int:
        """Return how many items could not be placed in this round."""
        return self._placement.truncated

    def read(self, answers: Messages) -> tuple[Indices, Rows]:
        """Return the items that take part and their rows, from both servers' answers."""
        words = [decode_answer(self.round, self.session_id, party, data) for party, data in enumerate(answers)]
        return row_access.recover(self.round, self._placement, (words[0], words[1]), self._backend)

    def read_relayed(self, answer: bytes) -> tuple[Indices, Rows]:
        """Return the items that take part and their rows, from the single answer through server 0."""
        masked, _, _ = decode_relayed_answer(self.round, self.session_id, answer)
        words = holds.mask(self.round.label(self.session_id), self.holds[1], masked, self._backend)
        return row_access.recover(self.round, self._placement, (words, np.zeros_like(words)), self._backend)

    def write(
        self, items: Indices, updates: npt.NDArray[np.floating], dense: npt.NDArray[np.floating] | None = None
    ) -> Messages:
        """Return the messages that add `updates[i]` to the row of `items[i]`, and `dense` to the dense part."""
        task = self.round.task
        dense = np.zeros(task.dense_size) if dense is None else dense
        if updates.shape != (items.size, task.row_width) or dense.shape != (task.dense_size,):
            raise SpecError("updates must have the shape (items, row width), and the dense update the task's length")
        # Everything that can fail comes before the path is spent.
        payload = self._placement.arrange(items, task.ring.encode(updates, bound=task.bound))
        encoded = task.ring.encode(dense, bound=task.bound)
        leaves = self._secret.spend()
        words, proof = self._correct(leaves, payload, encoded)
        if task.norm_shape is not None and proof is None:
            # Too long: the servers would reject it. No words have been sent, so words of zeros can be sent instead.
            payload, encoded = np.zeros_like(payload), np.zeros_like(encoded)
            words, proof = self._correct(leaves, payload, encoded)
        self.update = (
            encode_update(self.round, self.session_id, 0, words, self._hide_dense(encoded), proof),
            encode_update(self.round, self.session_id, 1, words, None, proof),
        )
        return self.update

    def _correct(
        self, leaves: tuple[Blocks, Blocks], payload: RingArray, dense: RingArray
    ) -> tuple[RingArray, Proof | None]:
        """Return the correction words, and the proof of their length if the task requires one and it can be made."""
        round_, label = self.round, self.round.label(self.session_id)
        words = self._backend.convert_gen(label.key(Purpose.CONVERT), *leaves, payload)
        shape = round_.task.norm_shape
        if shape is None:
            return words, None
        held = decode_keys(round_, self.session_id, 1, self.keys[1], self._backend)
        [sums] = self._backend.slot_sums(held, round_.task.geometry.leaves, words[None])
        statement = Statement(label, round_.task.ring, public_keys_digest(self.keys[1]), words)
        return words, prove(
            shape,
            statement,
            seeds=self._seeds,
            payload=payload,
            dense=dense,
            slot_sums1=sums,
            backend=self._backend,
        )

    def write_sums(self, values: npt.NDArray[np.floating]) -> Messages:
        """Return the messages that add `values` to the secure sum of a survey or an evaluation."""
        if not self.round.sum_size or values.shape != (self.round.sum_size,):
            raise SpecError(f"a round of kind {self.round.kind} sums {self.round.sum_size} numbers")
        encoded = SUM_RING.encode(values, bound=SUM_BOUND)
        self._secret.spend()  # one upload per session, whatever its kind
        # Drawn here and not with the other seeds, because a training session needs none.
        seed = self._random_bytes(SEED_BYTES)
        key = self.round.label(self.session_id).key(Purpose.SUM_SHARE, seed)
        self.update = (
            encode_sum_share(self.round, self.session_id, 0, secure_sum.hide(key, encoded, self._backend)),
            encode_sum_share(self.round, self.session_id, 1, seed),
        )
        return self.update

    def write_nothing(self) -> Messages:
        """Return the messages of a device whose training failed: zeros, because a missing upload would reveal that."""
        if self.round.sum_size:
            return self.write_sums(np.zeros(self.round.sum_size))
        none = np.empty(0, dtype=np.int64)
        return self.write(none, np.empty((0, self.round.task.row_width)))

    def _open(self) -> tuple[Messages, PathSecret]:
        geometry, label = self.round.task.geometry, self.round.label(self.session_id)
        roots = [expand_roots(label, seed, geometry.slots, self._backend) for seed in self._seeds]
        words, leaf0, leaf1 = self._backend.generate(
            SessionKeys.of(label), roots[0], roots[1], self._placement.leaves, geometry.depth
        )
        corrections = leaf_corrections(label, self._placement.leaves, (leaf0, leaf1), self._backend)
        messages = [
            encode_keys(self.round, self.session_id, party, seed, words, corrections)
            for party, seed in enumerate(self._seeds)
        ]
        return (messages[0], messages[1]), PathSecret(leaf0, leaf1)

    def _hide_dense(self, dense: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
        seed = self._seeds[1 - EXPLICIT_PARTY]
        key = self.round.label(self.session_id).key(Purpose.DENSE_SHARE, seed)
        return secure_sum.hide(key, dense, self._backend)
