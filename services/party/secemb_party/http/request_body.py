"""Request bodies, limited in length, duration and the memory that they take together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from starlette.requests import Request

from secemb_party.errors import BusyError, SlowBodyError
from secemb_party.http.connection_limits import WHOLE
from secemb_party.http.requests import BINARY, require_media_type
from secemb_party.http.security import read_header
from secemb_party.room import Memory
from secemb_party.settings import Devices
from secemb_shared.errors import LengthError

LARGEST_SMALL_BODY = 4096  # bytes; a join request has about 50
_CLOSED = "the connection closed before the body was complete"

Arrived = Callable[[int], None]
Read = Callable[[Request, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The limits on slow bodies."""

    seconds: float = 60.0  # for the whole body
    rate: float = 1024.0  # bytes per second that must have arrived on average after the grace period
    grace: float = 10.0  # seconds

    @classmethod
    def of(cls, devices: Devices) -> Self:
        """Return the limits from the settings."""
        return cls(seconds=devices.body_seconds, rate=devices.body_bytes_per_second)

    def until(self, start: float, received: int) -> float:
        """Return when a body becomes too slow unless more of it arrives."""
        by_rate = self.grace + received / self.rate if self.rate else self.seconds
        return start + min(self.seconds, by_rate)


class Bodies:
    """Reads device messages: one at a time per session, and only as many as memory allows."""

    def __init__(self, memory: Memory, patience: Patience) -> None:
        self._memory, self.patience = memory, patience
        self._sessions: set[bytes] = set()

    @contextmanager
    def of(self, session_id: bytes) -> Iterator[Read]:
        """Yield a reader for a session's message; its bytes count until the request is answered."""
        if session_id in self._sessions:
            raise BusyError(1)  # the earlier request continues, and the message can be sent again after it
        self._sessions.add(session_id)
        try:
            with self._memory.message() as arrived:
                yield lambda request, length: read_exactly(request, length, self.patience, arrived)
        finally:
            self._sessions.discard(session_id)


async def read_exactly(request: Request, length: int, patience: Patience, arrived: Arrived | None = None) -> bytes:
    """Return a body of `length` bytes; refuse a different Content-Length before reading a byte."""
    require_media_type(request, BINARY)
    announced = read_header(request, b"content-length", str(length))
    if announced != str(length):
        raise LengthError(f"expected exactly {length} bytes, but Content-Length differs")
    body = await _collect(request, length, patience, arrived)
    if len(body) != length:
        raise LengthError(f"expected exactly {length} bytes, got {'more' if len(body) > length else len(body)}")
    return body


async def read_small(request: Request, patience: Patience, *, most: int = LARGEST_SMALL_BODY) -> bytes:
    """Return a short body; refuse one that is too long or too slow, without reading the rest."""
    announced = read_header(request, b"content-length", "0")
    if not announced.isdecimal() or int(announced) > most:
        raise LengthError(f"the body must be at most {most} bytes")
    body = await _collect(request, most, patience)
    if len(body) > most:
        raise LengthError(f"the body must be at most {most} bytes")
    return body


async def _collect(request: Request, most: int, patience: Patience, arrived: Arrived | None = None) -> bytes:
    """Return the body, or only its beginning if it is too long."""
    if request.scope.get("state", {}).get(WHOLE):  # nothing to wait for: a timer would cost more than the reading
        return await _arrived_body(request, arrived)
    start, pieces, length, more = asyncio.get_running_loop().time(), [], 0, True
    try:
        async with asyncio.timeout_at(patience.until(start, 0)) as limit:
            while more and length <= most:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise SlowBodyError(_CLOSED)
                more = message.get("more_body", False)
                if piece := message.get("body", b""):
                    pieces.append(piece)
                    length += len(piece)
                    if arrived is not None:
                        arrived(len(piece))
                    if more:
                        limit.reschedule(patience.until(start, length))
    except TimeoutError:
        raise SlowBodyError(f"the body arrived too slowly: only {length} bytes received in time") from None
    return b"".join(pieces)


async def _arrived_body(request: Request, arrived: Arrived | None) -> bytes:
    """Return a body that the server has received as a whole."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise SlowBodyError(_CLOSED)
    body: bytes = message.get("body", b"")
    if arrived is not None:
        arrived(len(body))
    return body
