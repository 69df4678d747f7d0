"""The 24 bytes in front of every binary message: what it is and what it was made for.

    offset  bytes
    0       6     "secemb"
    6       1     protocol version, 1
    7       1     kind
    8       16    binding: of the round's specification, the session, the kind and the party

The receiver knows the round, so it knows the whole envelope and the exact length before it looks at the rest.
"""

from enum import IntEnum

from secemb_shared.errors import BindingError, EncodingError, KindError, LengthError, SpecError, VersionError
from secemb_shared.labels import Purpose
from secemb_shared.messages.spec import RoundSpec

MAGIC = b"secemb"
VERSION = 1
ENVELOPE_BYTES = 24


class Kind(IntEnum):
    """What a message is."""

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
        raise SpecError("there are two parties, 0 and 1")
    context = round_.digest + bytes([kind, party])
    binding = round_.label(session_id).derive(Purpose.BINDING, context)[:16]
    return MAGIC + bytes([VERSION, kind]) + binding


def open_envelope(data: bytes | memoryview, expected: bytes, body_bytes: int) -> memoryview:
    """Return the body of a message, or raise the error that says what is wrong with it."""
    if len(data) != ENVELOPE_BYTES + body_bytes:
        raise LengthError(f"expected exactly {ENVELOPE_BYTES + body_bytes} bytes, got {len(data)}")
    view = memoryview(data)
    if view[:6] != MAGIC:
        raise EncodingError("not a SecEmb message")
    if view[6] != VERSION:
        raise VersionError(f"this side speaks protocol version {VERSION}; update the older of the two")
    if view[7] != expected[7]:
        raise KindError(f"expected a message of kind {Kind(expected[7]).name}")
    if view[8:ENVELOPE_BYTES] != expected[8:]:
        raise BindingError("made for another task, round, session, purpose or party")
    return view[ENVELOPE_BYTES:]
