"""What keeps the relay between a device and server 1 from reading along and from claiming things: masks and marks.

All of it is derived from the session's hold at server 1, which server 0 does not know.

    mask       a stream that hides server 1's answer from the relay
    receipt    shows the device that server 1 holds a message, byte for byte
    dense      shows the device which dense part server 1 has published
"""

import numpy as np

from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.holds import mark
from secemb_shared.labels import Label, Purpose


def mask(place: Label, hold: bytes, words: Words32, backend: Backend | None = None) -> Words32:
    """Return the words with the mask put on, or taken off: it is the same."""
    stream = np.zeros(words.shape, dtype=np.uint32)
    (backend or default_backend()).add_stream(place.key(Purpose.ANSWER_MASK, hold), stream, negative=False)
    return np.bitwise_xor(words, stream, out=stream)


def receipt_of(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return what shows the device that server 1 holds the message with this SHA-256."""
    return mark(place, Purpose.RELAY_RECEIPT, hold, digest)


def dense_mark(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return what shows the device that server 1 publishes the dense part with this SHA-256."""
    return mark(place, Purpose.RELAY_DENSE, hold, digest)
