"""What a device and one server know of a session and the other server does not: its *hold* at that server.

The hold is the SHA-256 of the session's KEYS message to that server. The message has that server's master seed in it,
128 random bits that go nowhere else. Everything else in it the other server knows as well, so the hold is as hard to
guess as the seed, and no two KEYS have the same.

A *mark* is what either of the two shows the other about a message. One kind is asked for in every task: the *proof* of
an upload, which shows a server that it comes from whoever made the keys. A ticket does not show that, because server 0
makes tickets and server 1 sees them.
"""

import hashlib
import hmac

from secemb_shared.errors import ProofError
from secemb_shared.labels import Label, Purpose

MARK_BYTES = 16


def hold_of(keys: bytes) -> bytes:
    """Return what the device shares with the server that this KEYS message goes to. Secret."""
    return hashlib.sha256(keys).digest()


def proof_of(place: Label, hold: bytes, digest: bytes) -> bytes:
    """Return what shows a server that the upload with this SHA-256 is from the device that made the keys."""
    return mark(place, Purpose.UPLOAD_PROOF, hold, digest)


def check_proof(place: Label, hold: bytes, digest: bytes, shown: bytes) -> None:
    """Raise unless this is the proof of the upload with this SHA-256."""
    if not same_mark(proof_of(place, hold, digest), shown):
        raise ProofError("this upload does not come from the device that made the keys")


def mark(place: Label, purpose: Purpose, hold: bytes, digest: bytes) -> bytes:
    """Return what nobody can make without the hold."""
    return place.derive(purpose, hold + digest)[:MARK_BYTES]


def same_mark(left: bytes, right: bytes) -> bool:
    """Compare two marks in constant time."""
    return hmac.compare_digest(left, right)
