"""What a device and server 1 know and the relay between them does not: masks, proofs and receipts.

All of it is derived from the session's *hold*, the SHA-256 of its KEYS message to server 1. That message has the
master seed of server 1 in it, so that only the device and server 1 know the hold, and no two KEYS have the same.

    mask       a stream that hides server 1's answer from the relay
    proof      shows server 1 that an upload comes from whoever made the keys
    receipt    shows the device that server 1 holds a message, byte for byte
    dense      shows the device which dense part server 1 has published
"""

import hashlib
import hmac

import numpy as np

from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.labels import Label, Purpose

MARK_BYTES = 16  # of a proof, a receipt or a confirmation


def hold_of(keys: bytes) -> bytes:
    """Return what the device and server 1 share, from the KEYS message to server 1. Secret."""
    return hashlib.sha256(keys).digest()


def mask(place: Label, hold: bytes, words: Words32, backend: Backend | None = None) -> Words32:
    """Return the words with the mask put on, or taken off: it is the same."""
    stream = np.zeros(words.shape, dtype=np.uint32)
    (backend or default_backend()).add_stream(place.key(Purpose.ANSWER_MASK, hold), stream, negative=False)
    return np.bitwise_xor(words, stream, out=stream)


def proof_of(place: Label, hold: bytes, message: bytes) -> bytes:
    """Return what shows server 1 that its upload `message` is from the device that made the keys."""
    return _mark(place, Purpose.RELAY_PROOF, hold, hashlib.sha256(message).digest())


def receipt_of(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return what shows the device that server 1 holds the message with this SHA-256."""
    return _mark(place, Purpose.RELAY_RECEIPT, hold, digest)


def dense_mark(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return what shows the device that server 1 publishes the dense part with this SHA-256."""
    return _mark(place, Purpose.RELAY_DENSE, hold, digest)


def same_mark(left: bytes, right: bytes) -> bool:
    """Compare two marks in constant time."""
    return hmac.compare_digest(left, right)


def _mark(place: Label, purpose: Purpose, hold: bytes, digest: bytes) -> bytes:
    return place.derive(purpose, hold + digest)[:MARK_BYTES]
