"""Messages that server 0 relays to server 1, and the replies: many sessions in one request.

A request is a sequence of frames, each preceded by its length (4 bytes, little-endian):

    step       1   the kind of the direct message: KEYS, UPDATE or SUM_SHARE
    round     32   digest
    session   16
    ticket    72
    the rest       key id and box, then the public part

The answer is a sequence of replies in any order: the frame's index in the request (4 bytes), the reply's length (4
bytes), then a byte that is 0 if the step's result follows, or 1 if a refusal (JSON) follows.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from dataclasses import dataclass

from secemb_party.errors import TicketError
from secemb_party.tickets import TICKET_BYTES, Claim
from secemb_shared.errors import EncodingError, LengthError
from secemb_shared.messages import Kind

MOST_FRAMES = 64
_STEPS = (Kind.KEYS, Kind.UPDATE, Kind.SUM_SHARE)
_HEAD = 1 + 32 + 16 + TICKET_BYTES
_LENGTH = 4
_LONGEST_REFUSAL = 1024
_DONE, _REFUSED = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True, repr=False)
class Frame:
    """One session's message for server 1."""

    step: Kind
    claim: Claim
    rest: bytes

    def encode(self) -> bytes:
        """Return the frame, preceded by its length."""
        try:
            ticket = urlsafe_b64decode(self.claim.ticket.encode("ascii"))
        except (Base64Error, ValueError):
            ticket = b""
        if len(ticket) != TICKET_BYTES:
            raise TicketError("the ticket has the wrong length; send the one that join returned")
        length = (_HEAD + len(self.rest)).to_bytes(_LENGTH, "little")
        claim = self.claim
        return b"".join((length, bytes([self.step]), claim.round_id, claim.session_id, ticket, self.rest))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why server 1 refused a frame: the slug of a problem, and when to retry."""

    slug: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """Server 1's reply to one frame."""

    place: int
    body: bytes | Refusal

    def encode(self) -> bytes:
        """Return the reply, preceded by its index and length."""
        body = _DONE + self.body if isinstance(self.body, bytes) else _REFUSED + _refused(self.body)
        return self.place.to_bytes(_LENGTH, "little") + len(body).to_bytes(_LENGTH, "little") + body


def read_frames(data: bytes) -> Iterator[Frame]:
    """Yield the frames of a request; refuse anything else."""
    at, count = 0, 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _LENGTH], "little")
        frame, at, count = data[at + _LENGTH : at + _LENGTH + size], at + _LENGTH + size, count + 1
        if len(frame) != size or size < _HEAD or count > MOST_FRAMES:
            raise LengthError("the frames are truncated, or there are too many for one request")
        if frame[0] not in _STEPS:
            raise EncodingError("a frame has an unknown step")
        ticket = urlsafe_b64encode(frame[49:_HEAD]).decode("ascii")
        yield Frame(Kind(frame[0]), Claim(frame[1:33], frame[33:49], ticket), frame[_HEAD:])


class ReplyReader:
    """Parses replies from an answer that arrives in pieces; a reply is a refusal or has at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._buffer, self._most = bytearray(), max(most, _LONGEST_REFUSAL)

    def feed(self, piece: bytes) -> Iterator[Reply]:
        """Yield the replies that are now complete."""
        self._buffer += piece
        while len(self._buffer) >= 2 * _LENGTH:
            size = int.from_bytes(self._buffer[_LENGTH : 2 * _LENGTH], "little")
            if size > 1 + self._most:  # refused before buffering, because the length may claim 4 GB
                raise LengthError("a reply is longer than expected")
            end = 2 * _LENGTH + size
            if len(self._buffer) < end:
                return
            place, body = int.from_bytes(self._buffer[:_LENGTH], "little"), bytes(self._buffer[2 * _LENGTH : end])
            del self._buffer[:end]
            yield Reply(place, _read_body(body))


def _refused(refusal: Refusal) -> bytes:
    return json.dumps({"slug": refusal.slug, "retry_after": refusal.retry_after}).encode()


def _read_body(body: bytes) -> bytes | Refusal:
    if body[:1] == _DONE:
        return body[1:]
    try:
        found = json.loads(body[1:])
        slug, seconds = found["slug"], found["retry_after"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EncodingError("cannot parse server 1's reply; check that both servers run the same version") from None
    return Refusal(str(slug)[:100], seconds if type(seconds) is int and 0 <= seconds <= 86_400 else None)
