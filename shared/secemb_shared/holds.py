"""A session's *hold*: a secret that a device shares with one server but not the other, and values derived from it."""

import hashlib
import hmac

import numpy as np

from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import MacError
from secemb_shared.labels import Label, Purpose

MARK_BYTES = 16


def hold_of(keys: bytes) -> bytes:
    """Return the secret that the device shares with the recipient of this KEYS message."""
    return hashlib.sha256(keys).digest()


def upload_mac(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return the MAC that proves to a server that the upload with this SHA-256 is from the device with the keys."""
    return mark(place, Purpose.UPLOAD_MAC, hold, digest)


def check_upload_mac(place: Label, hold: bytes, digest: bytes, shown: bytes) -> None:
    """Raise unless this is the MAC of the upload with this SHA-256."""
    if not same_mark(upload_mac(place, hold, digest), shown):
        raise MacError("this upload was not made by the device that generated the keys")


def mark(place: Label, purpose: Purpose, hold: bytes, digest: bytes) -> bytes:
    """Return a mark that cannot be computed without the hold."""
    return place.derive(purpose, hold + digest)[:MARK_BYTES]


def same_mark(left: bytes, right: bytes) -> bool:
    """Compare two marks in constant time."""
    return hmac.compare_digest(left, right)


def mask(place: Label, hold: bytes, words: Words32, backend: Backend | None = None) -> Words32:
    """Return the words with the mask added or removed; both are the same operation."""
    stream = np.zeros(words.shape, dtype=np.uint32)
    (backend or default_backend()).add_stream(place.key(Purpose.ANSWER_MASK, hold), stream, negative=False)
    return np.bitwise_xor(words, stream, out=stream)


def receipt_of(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return the mark that proves to the device that server 1 holds the message with this SHA-256."""
    return mark(place, Purpose.RELAY_RECEIPT, hold, digest)


def dense_mark(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return the mark that proves to the device that server 1 publishes the dense part with this SHA-256."""
    return mark(place, Purpose.RELAY_DENSE, hold, digest)
