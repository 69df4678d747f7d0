"""Tickets: server 0's signed word that a session may take part in a round.

A ticket is 72 bytes: the time it ends (8 bytes, seconds, little-endian) and an Ed25519 signature over the domain, the
round's digest, the session and that time. Task, round and session stand in the request already and are not repeated;
a ticket for any other of them does not verify. Both servers check it; only server 0 can make one.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secemb_shared.errors import SecEmbError

DOMAIN = b"secemb/1 ticket"
TICKET_BYTES = 72


class TicketError(SecEmbError):
    """A ticket is missing, malformed, expired, or made for something else."""


def issue_ticket(key: Ed25519PrivateKey, round_id: bytes, session_id: bytes, expires: int) -> str:
    """Return a ticket as text for a header."""
    end = expires.to_bytes(8, "little")
    return urlsafe_b64encode(end + key.sign(_statement(round_id, session_id, end))).decode()


def check_ticket(key: Ed25519PublicKey, ticket: str, round_id: bytes, session_id: bytes, now: float) -> None:
    """Raise `TicketError` unless the ticket is for exactly this session of this round and still good."""
    try:
        data = urlsafe_b64decode(ticket.encode("ascii"))
    except (Base64Error, ValueError):
        raise TicketError("the ticket is not base64; send the one that join returned") from None
    if len(data) != TICKET_BYTES:
        raise TicketError("the ticket has the wrong length; send the one that join returned")
    try:
        key.verify(data[8:], _statement(round_id, session_id, data[:8]))
    except InvalidSignature:
        raise TicketError("the ticket is for another round or session, or not from server 0; join again") from None
    if int.from_bytes(data[:8], "little") < now:
        raise TicketError("the ticket has expired; join again")


def _statement(round_id: bytes, session_id: bytes, end: bytes) -> bytes:
    return DOMAIN + round_id + session_id + end
