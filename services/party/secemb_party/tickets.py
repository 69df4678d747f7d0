"""Tickets: server 0's signed permission for a session to take part in a round, or only to read in it.

A ticket is 72 bytes: when it expires (8 bytes, seconds, little-endian) and an Ed25519 signature over the domain, the
round's digest, the session and that time. Round and session are already in the request and are not repeated; a ticket
for another round, session or domain does not verify. Both servers check tickets; only server 0 issues them.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secemb_party.errors import TicketError, TicketExpiredError

DOMAIN = b"secemb/1 ticket"
READ_DOMAIN = b"secemb/1 read ticket"
TICKET_BYTES = 72
CLOCK_TOLERANCE = 60.0  # seconds for which server 1 accepts an expired ticket: its clock may be ahead of server 0's
_REMEMBERED = 4096  # limit on cached tickets, which need not be verified again
_TEXT = re.compile(rf"[A-Za-z0-9_-]{{{TICKET_BYTES * 4 // 3}}}")  # base64url; this number of bytes needs no padding


@dataclass(frozen=True, slots=True, repr=False)
class Claim:
    """The session that a message claims to belong to, and its ticket."""

    round_id: bytes
    session_id: bytes
    ticket: str


def issue_ticket(
    key: Ed25519PrivateKey, round_id: bytes, session_id: bytes, expires: int, *, domain: bytes = DOMAIN
) -> str:
    """Return a ticket as text for a header."""
    end = expires.to_bytes(8, "little")
    return urlsafe_b64encode(end + key.sign(_statement(domain, round_id, session_id, end))).decode()


class TicketCheck:
    """Checks tickets. A device presents the same one with its keys and its update; it is verified only once."""

    def __init__(self, key: Ed25519PublicKey, *, domain: bytes = DOMAIN, tolerance: float = 0.0) -> None:
        self._key, self._domain, self._tolerance = key, domain, tolerance
        self._verified: OrderedDict[Claim, int] = OrderedDict()  # and when each expires

    def check(self, claim: Claim, now: float) -> None:
        """Raise `TicketError` unless the ticket is for exactly this session of this round and has not expired."""
        expires = self._verified.get(claim)
        if expires is None:
            expires = check_signature(self._key, claim, self._domain)
            self.remember(claim, expires)
        if expires + self._tolerance < now:
            raise TicketExpiredError("the ticket has expired; join again")

    def remember(self, claim: Claim, expires: int) -> None:
        """Cache a ticket that is known to be genuine: it was verified or has just been issued here."""
        self._verified[claim] = expires
        if len(self._verified) > _REMEMBERED:
            self._verified.popitem(last=False)


def check_signature(key: Ed25519PublicKey, claim: Claim, domain: bytes = DOMAIN) -> int:
    """Return when a ticket for exactly this session of this round expires, or raise `TicketError`."""
    # The decoder skips invalid characters: without this check, one ticket would have many valid spellings.
    if not _TEXT.fullmatch(claim.ticket):
        raise TicketError("this is not a ticket; send the one that join returned, unchanged")
    data = urlsafe_b64decode(claim.ticket)
    try:
        key.verify(data[8:], _statement(domain, claim.round_id, claim.session_id, data[:8]))
    except InvalidSignature:
        raise TicketError("the ticket is for another round or session, or not from server 0; join again") from None
    return int.from_bytes(data[:8], "little")


def _statement(domain: bytes, round_id: bytes, session_id: bytes, end: bytes) -> bytes:
    return domain + round_id + session_id + end
