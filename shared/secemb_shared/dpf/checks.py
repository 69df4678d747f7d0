"""Verifiable keys: the parties can check that the trees of a slot differ in at most one leaf.

After de Castro and Polychroniadou (2022). The keys contain, for each slot, the correction c = H(α, n₀) ⊕ H(α, n₁) of
the two parties' nodes at the chosen leaf. Each party computes H(x, n) ⊕ t · c for every leaf x. Where the nodes are
equal, so are these values; where they differ, the values are equal only if the control bits differ and c matches. Two
such leaves in one slot would be a collision H ⊕ H = H ⊕ H. This is why the control bit is hashed with the seed, why
each leaf has its own keys, and why a hash has 384 bits: with 256 bits, a search over four lists would take about 2^85
steps.

The parties compare 16 bytes per session instead of all values: a fingerprint under keys that no device knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from secemb_shared.labels import Label, Purpose
from secemb_shared.prg import BLOCK, Bits, Blocks, aes, hash_blocks, stream

HASHES = 3  # number of blocks in a leaf's hash
HASH_BYTES = HASHES * BLOCK
CHECK_KEY_BYTES = 16


@dataclass(frozen=True, slots=True, repr=False)
class SlotChecks:
    """The data for checking the leaves of one or more sessions; public, and the same for both parties."""

    leaf_keys: Blocks  # (sessions, 16)
    corrections: Blocks  # (sessions, slots, 48)
    first_slot: int = 0  # of the session, if these are the slots of a range: the fingerprint depends on it

    @classmethod
    def of(cls, label: Label, corrections: Blocks) -> Self:
        """Return the checks of one session."""
        key = np.frombuffer(label.key(Purpose.LEAF_HASH), dtype=np.uint8)
        return cls(key[None], corrections[None])

    @classmethod
    def together(cls, checks: "Sequence[SlotChecks]") -> "SlotChecks":
        """Return the checks of several sessions of the same shape, for evaluation in one pass."""
        if len(checks) == 1:
            return checks[0]
        return SlotChecks(
            np.concatenate([one.leaf_keys for one in checks]), np.concatenate([one.corrections for one in checks])
        )


def fingerprint_keys(place: Label, secret: bytes) -> Blocks:
    """Derive the (4, 16) keys of a round's fingerprints from the secret that the two servers share."""
    halves = (place.derive(Purpose.FINGERPRINT, secret + bytes([half])) for half in (0, 1))
    return np.frombuffer(b"".join(halves), dtype=np.uint8).reshape(HASHES + 1, BLOCK)


def leaf_hash(key: bytes, nodes: Blocks, leaf: int) -> Blocks:
    """Return H(leaf, n) of nodes with their control bits: H_K(n) for the leaf's three keys, (…, 48) bytes."""
    keys = stream(key, HASHES, first=HASHES * leaf)
    return np.concatenate([hash_blocks(bytes(one), nodes) for one in keys], axis=-1)


def leaf_prints(keys: Blocks, values: Blocks, *, first_slot: int, leaf: int) -> Blocks:
    """Return one leaf's contribution to the fingerprint for adjacent slots, given H ⊕ t · c: one block for all."""
    slots = values.shape[0]
    places = np.zeros((slots, 2), dtype="<u8")
    places[:, 0], places[:, 1] = np.arange(first_slot, first_slot + slots), 1
    key = bytes(keys[HASHES])
    masks = aes(key, places.view(np.uint8)) ^ stream(key, 1, first=leaf)
    blocks = values.reshape(slots, HASHES, BLOCK)
    prints = [aes(bytes(keys[one]), np.ascontiguousarray(blocks[:, one]) ^ masks) for one in range(HASHES)]
    found: Blocks = np.bitwise_xor.reduce(np.concatenate(prints), axis=0)
    return found


def corrected(hashes: Blocks, bits: Bits, corrections: Blocks) -> Blocks:
    """Return H ⊕ t · c."""
    return hashes ^ bits[..., None] * corrections
