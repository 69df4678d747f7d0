"""Boxes that only server 1 opens: HPKE (RFC 9180, base mode) with X25519, HKDF-SHA256 and AES-128-GCM.

What a box is bound to stands in HPKE's `info`, 76 bytes:

    "secemb/1 relay box"   18   the protocol and its version
    role                    1   of who opens it, always 1
    task_id                32
    round                   8   its number, little-endian
    session_id             16
    step                    1   the kind of the message inside, as in its envelope

A box opened anywhere else is refused like one that was altered. On the wire it is the ephemeral public key (32 bytes),
the content encrypted, and the tag (16 bytes).
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secemb_shared.errors import BoxError
from secemb_shared.labels import Label
from secemb_shared.messages.envelope import Kind

DOMAIN = b"secemb/1 relay box"
OPENER = 1  # the party that boxes are for
BOX_OVERHEAD = 32 + 16
_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)


def box_info(place: Label, step: Kind) -> bytes:
    """Return what a box is bound to."""
    number = place.number.to_bytes(8, "little")
    return DOMAIN + bytes([OPENER]) + place.task_id + number + place.session_id + bytes([step])


def seal_box(key: X25519PublicKey, place: Label, step: Kind, content: bytes) -> bytes:
    """Return the content in a box. Two boxes of one content differ: the library draws a key for each."""
    return _SUITE.encrypt(content, key, info=box_info(place, step))


def open_box(key: X25519PrivateKey, place: Label, step: Kind, box: bytes) -> bytes:
    """Return the content of a box that was made for exactly this place and step."""
    try:
        return _SUITE.decrypt(box, key, info=box_info(place, step))
    except (InvalidTag, ValueError):
        raise BoxError("the sealed part does not open: altered, or made for another session, round or step") from None
