"""The messages of a device that talks only to server 0, and the HPKE boxes in them, which only server 1 can open."""

from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import AlteredError, BoxError, OtherRoundError
from secemb_shared.holds import MARK_BYTES
from secemb_shared.labels import Label
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import (
    ENVELOPE_BYTES,
    SEED_BYTES,
    Kind,
    Sizes,
    envelope,
    open_envelope,
    public_update_bytes,
    sum_share_bytes,
)
from secemb_shared.messages.relay_key import KEY_ID_BYTES, RelayKey
from secemb_shared.messages.spec import TRAIN, RoundSpec

DOMAIN = b"secemb/1 relay box"
OPENER = 1  # the party that can open boxes
BOX_OVERHEAD = 32 + 16
_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)


def box_info(place: Label, step: Kind) -> bytes:
    """Return the data that a box is bound to."""
    number = place.number.to_bytes(8, "little")
    return DOMAIN + bytes([OPENER]) + place.task_id + number + place.session_id + bytes([step])


def encrypt_box(key: X25519PublicKey, place: Label, step: Kind, content: bytes) -> bytes:
    """Encrypt the content in a box. Two boxes with the same content differ: the library draws a key for each."""
    return _SUITE.encrypt(content, key, info=box_info(place, step))


def open_box(key: X25519PrivateKey, place: Label, step: Kind, box: bytes) -> bytes:
    """Return the content of a box that was made for exactly this place and step."""
    try:
        return _SUITE.decrypt(box, key, info=box_info(place, step))
    except (InvalidTag, ValueError):
        raise BoxError("cannot decrypt the box: it was altered, or made for another session, round or step") from None


Messages = tuple[bytes, bytes]  # to party 0 and party 1, as they would be sent directly

_DIGEST = 32
_DIGESTS = 2 * _DIGEST


@dataclass(frozen=True, slots=True, repr=False)
class Split:
    """A relayed message as server 0 takes it apart."""

    own: bytes  # the direct message to party 0
    public: bytes  # identical for both parties
    box: bytes  # key id and HPKE box, for party 1


def step_of(round_: RoundSpec, kind: Kind) -> Kind:
    """Return the kind of direct message that a relayed one replaces."""
    if kind is Kind.RELAYED_KEYS:
        return Kind.KEYS
    return Kind.UPDATE if round_.kind == TRAIN else Kind.SUM_SHARE


def relayed_bytes(round_: RoundSpec, kind: Kind) -> int:
    """Return the exact length of a relayed message."""
    step = step_of(round_, kind)
    return ENVELOPE_BYTES + _own_bytes(round_, step) + box_bytes(step)


def box_bytes(step: Kind) -> int:
    """Return the length of key id and box."""
    return KEY_ID_BYTES + BOX_OVERHEAD + _DIGESTS + _seed_bytes(step) + _mac_bytes(step)


def public_bytes(round_: RoundSpec, step: Kind) -> int:
    """Return the length of the part that is identical for both parties."""
    match step:
        case Kind.KEYS:
            return Sizes.of(round_.task).keys - ENVELOPE_BYTES - SEED_BYTES
        case Kind.UPDATE:
            return public_update_bytes(round_.task)
        case _:
            return 0


def reply_bytes(round_: RoundSpec, step: Kind) -> int:
    """Return the length of party 1's reply to a message: masked words and two marks, or only a receipt."""
    return Sizes.of(round_.task).answer - ENVELOPE_BYTES + 2 * MARK_BYTES if step is Kind.KEYS else MARK_BYTES


def box_content(round_: RoundSpec, step: Kind, message: bytes, *, mac: bytes = b"") -> bytes:
    """Return what the box contains besides the direct message to party 1."""
    private, public = _private_and_public(step, message[ENVELOPE_BYTES:])
    return digest(public) + round_.digest + private + mac


def encode_relayed(
    round_: RoundSpec, session_id: bytes, kind: Kind, own: bytes, content: bytes, key: RelayKey
) -> bytes:
    """Return the relayed message of `own`, the direct message to party 0, and the content of a box for party 1."""
    box = encrypt_box(key.key, round_.label(session_id), step_of(round_, kind), content)
    return b"".join((envelope(round_, session_id, kind, 0), own[ENVELOPE_BYTES:], key.key_id, box))


def split_relayed(round_: RoundSpec, session_id: bytes, kind: Kind, data: bytes) -> Split:
    """Split a relayed message into its parts at server 0, which cannot open the box."""
    step = step_of(round_, kind)
    own_bytes = _own_bytes(round_, step)
    body = open_envelope(data, envelope(round_, session_id, kind, 0), own_bytes + box_bytes(step))
    own, box = body[:own_bytes], bytes(body[own_bytes:])
    start = SEED_BYTES if step is Kind.KEYS else 0
    public = bytes(own[start : start + public_bytes(round_, step)])
    return Split(envelope(round_, session_id, step, 0) + own, public, box)


def open_content(round_: RoundSpec, session_id: bytes, step: Kind, key: X25519PrivateKey, box: bytes) -> bytes:
    """Return the content of the box at party 1."""
    content = open_box(key, round_.label(session_id), step, box[KEY_ID_BYTES:])
    if len(content) != box_bytes(step) - KEY_ID_BYTES - BOX_OVERHEAD:
        raise BoxError("the content of the box has the wrong length for this step")
    return content


def rebuild(round_: RoundSpec, session_id: bytes, step: Kind, public: bytes, content: bytes) -> tuple[bytes, bytes]:
    """Return the direct message to party 1 and its MAC, or raise if the relay has changed it.

    The MAC is returned unchecked, to be checked like that of a direct message; keys have none.
    """
    if content[_DIGEST:_DIGESTS] != round_.digest:
        raise OtherRoundError("this message is for a different round than the one announced here")
    if content[:_DIGEST] != digest(public):
        raise AlteredError("the relay altered the bytes that the device sent")
    seed_end = _DIGESTS + _seed_bytes(step)
    message = b"".join((envelope(round_, session_id, step, 1), content[_DIGESTS:seed_end], public))
    return message, content[seed_end:]


def encode_relayed_answer(round_: RoundSpec, session_id: bytes, own: bytes, other: bytes) -> bytes:
    """Return the answer to the device, from party 0's ANSWER and party 1's reply: masked words and its marks."""
    size = len(own) - ENVELOPE_BYTES
    words = np.frombuffer(own, np.uint8, offset=ENVELOPE_BYTES) ^ np.frombuffer(other, np.uint8, count=size)
    return b"".join((envelope(round_, session_id, Kind.RELAYED_ANSWER, 0), words.data, other[size:]))


def decode_relayed_answer(round_: RoundSpec, session_id: bytes, data: bytes) -> tuple[Words32, bytes, bytes]:
    """Return the masked words, the receipt for the keys and the confirmation of the dense part."""
    task = round_.task
    shape = (task.geometry.slots, task.row_words + 1)
    size = shape[0] * shape[1] * 4
    expected = envelope(round_, session_id, Kind.RELAYED_ANSWER, 0)
    body = open_envelope(data, expected, size + 2 * MARK_BYTES)
    words = np.frombuffer(body[:size], dtype="<u4").astype(np.uint32).reshape(shape)
    return words, bytes(body[size : size + MARK_BYTES]), bytes(body[size + MARK_BYTES :])


def _own_bytes(round_: RoundSpec, step: Kind) -> int:
    """Return the length of the direct message to party 0, without its envelope."""
    match step:
        case Kind.KEYS:
            return Sizes.of(round_.task).keys - ENVELOPE_BYTES
        case Kind.UPDATE:
            return Sizes.of(round_.task).update[0] - ENVELOPE_BYTES
        case _:
            return sum_share_bytes(round_, 0) - ENVELOPE_BYTES


def _private_and_public(step: Kind, body: bytes) -> tuple[bytes, bytes]:
    size = _seed_bytes(step)
    return body[:size], body[size:]


def _seed_bytes(step: Kind) -> int:
    return 0 if step is Kind.UPDATE else SEED_BYTES


def _mac_bytes(step: Kind) -> int:
    return 0 if step is Kind.KEYS else MARK_BYTES
