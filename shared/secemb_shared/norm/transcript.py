"""Commitments and the challenges hashed from them: the update cannot change after its challenge."""

import hashlib
from dataclasses import dataclass
from typing import Self

from secemb_shared.dpf import RingArray
from secemb_shared.errors import LengthError
from secemb_shared.labels import Label, Purpose
from secemb_shared.norm.field import Field
from secemb_shared.norm.shape import DIGEST_BYTES, PUBLIC_BYTES, TRANSCRIPT_BYTES
from secemb_shared.ring import Ring

_WITNESS = 2  # a party's number takes this place in the commitments to seeds


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """The public parts of one session that the proof covers; the same for the device and both servers."""

    label: Label  # of the session
    ring: Ring  # of the task
    keys_digest: bytes  # of everything public in its keys
    words: RingArray  # (slots, width): its correction words

    def commit_share(self, party: int, seed: bytes, dense_share: RingArray | None) -> bytes:
        """Commit to what determines a party's share of the update: its master seed, and server 0's dense share."""
        explicit = b"" if dense_share is None else bytes(self.ring.pack(dense_share))
        return self.label.derive(Purpose.NORM_COMMIT, bytes([party]) + seed + explicit)

    def commit_witness(self, seed0: bytes, witness_share: bytes) -> bytes:
        """Commit to server 0's share of the witness; server 1's is determined by its seed."""
        return self.label.derive(Purpose.NORM_COMMIT, bytes([_WITNESS]) + seed0 + witness_share)


@dataclass(frozen=True, slots=True)
class Commitments:
    """What a device publishes before its challenges are known."""

    share0: bytes
    share1: bytes
    witness: bytes

    def encode(self) -> bytes:
        """Return the public bytes of a proof."""
        return self.share0 + self.share1 + self.witness

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the public bytes of a proof."""
        if len(data) != PUBLIC_BYTES:
            raise LengthError(f"expected {PUBLIC_BYTES} bytes of norm proof commitments, got {len(data)}")
        return cls(*(data[at : at + DIGEST_BYTES] for at in range(0, PUBLIC_BYTES, DIGEST_BYTES)))


@dataclass(frozen=True, slots=True, repr=False)
class Joint:
    """The values that both servers derive from the commitments; they differ if a commitment is false."""

    rho: int  # the challenge that binds the witness
    transcript: bytes


def challenge(statement: Statement, share0: bytes, share1: bytes) -> bytes:
    """Return the seed of the projections, derived from everything that determines the update."""
    words = hashlib.sha256(statement.ring.pack(statement.words)).digest()
    return statement.label.derive(Purpose.NORM_CHALLENGE, statement.keys_digest + words + share0 + share1)


def join(statement: Statement, field: Field, seed: bytes, witness: bytes) -> Joint:
    """Derive the challenges from the seed of the projections and the commitment to the witness."""
    joint = statement.label.derive(Purpose.NORM_JOINT, seed + witness)
    return Joint(field.stream(joint[:16], 1)[0], joint[16 : 16 + TRANSCRIPT_BYTES])
