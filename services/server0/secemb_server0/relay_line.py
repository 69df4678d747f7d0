"""Server 0's line to server 1 for the relayed transport: frames out as they are, replies in as they come."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import httpx

from secemb_party.errors import PeerUnavailableError
from secemb_party.relay_frames import Reply, ReplyReader
from secemb_party.telemetry import Metrics
from secemb_server0.peer import LINE_ERRORS
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.relay_key import RELAY_KEY_BYTES

_OK = 200


class RelayLine(Protocol):
    """What a relay asks of server 1."""

    async def relay_key(self) -> bytes:
        """Return the signed announcement of server 1's key."""

    def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        """Send frames in one request and yield the replies, at most so many bytes each, as they arrive."""


class HttpRelayLine:
    """The line over the peer channel."""

    def __init__(self, client: httpx.AsyncClient, metrics: Metrics | None = None) -> None:
        self._client, self._metrics = client, metrics or Metrics()

    async def relay_key(self) -> bytes:
        """Return the signed announcement of server 1's key."""
        try:
            answer = await self._client.get("/peer/v1/relay-key")
        except LINE_ERRORS as error:
            raise self._unavailable("relay-key", error) from error
        if answer.status_code != _OK or len(answer.content) != RELAY_KEY_BYTES:
            raise self._unavailable("relay-key", None)
        self._metrics.peer_call("relay-key", "ok")
        return answer.content

    async def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        """Send frames in one request, without joining them, and yield the replies as they arrive."""
        headers = {"content-type": "application/octet-stream", "content-length": str(sum(map(len, frames)))}
        reader = ReplyReader(most)
        try:
            async with self._client.stream("POST", "/peer/v1/relay", content=_each(frames), headers=headers) as answer:
                if answer.status_code != _OK:
                    raise self._unavailable("relay", None)
                async for piece in answer.aiter_bytes():
                    for reply in reader.feed(piece):
                        yield reply
        except LINE_ERRORS as error:
            raise self._unavailable("relay", error) from error
        except SecEmbError as error:
            raise error if isinstance(error, PeerUnavailableError) else self._unavailable("relay", error) from error
        self._metrics.peer_call("relay", "ok")
        self._metrics.heard_peer(time.time())

    def _unavailable(self, route: str, error: Exception | None) -> PeerUnavailableError:
        self._metrics.peer_call(route, "unreachable")
        return PeerUnavailableError(f"server 1 cannot be reached ({type(error).__name__})")


async def _each(frames: Sequence[bytes]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame
