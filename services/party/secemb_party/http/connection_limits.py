"""Limits on client connections: their number, and the length and duration of request headers.

uvicorn limits none of these. A client that never ends a header would hold its connection and memory indefinitely.
"""

import asyncio
import logging
import resource
from dataclasses import dataclass, replace
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from secemb_party.http.answer_transport import AnswerTransport
from secemb_party.logs import Outage, get_logger

_SPARE_FILES = 1280  # for the three other listeners, the ledger, the model and the connections to the other server
_FEWEST = 16
WHOLE = "secemb.whole"  # key in the state of a request whose body has arrived completely


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a listener."""

    connections: int = 256
    head_bytes: int = 32 << 10
    head_seconds: float = 10.0  # until the end of the headers, or of a body that was answered before it was read
    idle_seconds: int = 75  # between an answer and the next request

    def for_open_files(self) -> "ConnectionLimits":
        """Return limits for which this process may open enough files, after raising its soft limit if needed."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.connections + _SPARE_FILES
        if soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft >= wanted:
            return self
        fewer = replace(self, connections=max(_FEWEST, soft - _SPARE_FILES))
        get_logger().warning(
            "the limit on open files is too low; raise it (LimitNOFILE, ulimit -n)",
            files=soft,
            wanted=wanted,
            connections=fewer.connections,
        )
        return fewer


FEW = ConnectionLimits()  # for listeners that devices do not use


class ClientWarnings(logging.Filter):
    """Counts uvicorn's warnings about clients, and logs them from time to time; everything else passes.

    uvicorn logs a line, or two, for each malformed request. Any client could fill the disk with them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._malformed = Outage("clients sent malformed requests", "")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged as it is."""
        if record.levelno != logging.WARNING:
            return True
        if "WebSocket" not in (cause := record.getMessage()):  # advice to install a library that is not wanted
            self._malformed.failed(cause)
        return False


_ABOUT_CLIENTS = logging.getLogger("uvicorn.error.clients")
_ABOUT_CLIENTS.addFilter(ClientWarnings())


def connection_class(limits: ConnectionLimits) -> type[HttpToolsProtocol]:
    """Return uvicorn's HTTP protocol class with these limits."""

    class Connection(HttpToolsProtocol):
        """A connection that closes itself when the client exceeds the limits."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.logger = _ABOUT_CLIENTS
            self._deadline: asyncio.TimerHandle | None = None
            self._in_head = False
            self._around_bodies = 0  # bytes since the last headers or body data: of headers, trailers or chunk sizes

        def has_room(self, handshakes: int) -> bool:
            """Return whether another connection is allowed besides the open ones and this many handshakes."""
            return len(self.connections) + handshakes < limits.connections

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(AnswerTransport(transport, self.loop))
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._around_bodies += len(data)
            super().data_received(data)
            if self._in_head and self._deadline is None:  # most headers arrive in one piece and need no deadline
                self._wait()
            if self._around_bodies > limits.head_bytes and not self.transport.is_closing():
                self.send_400_response("The request headers are too long.")

        def on_message_begin(self) -> None:
            if self._deadline is not None:
                self._stop_waiting()
            self._in_head = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            if self._deadline is not None:
                self._stop_waiting()
            self._around_bodies = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._around_bodies = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self._deadline is not None:
                self._stop_waiting()
            self._around_bodies = 0
            self.scope["state"][WHOLE] = True
            super().on_message_complete()

        def on_response_complete(self) -> None:
            if self.cycle.more_body:  # refused before it was read; give the client time to read the answer
                self._wait()
            super().on_response_complete()

        def _wait(self) -> None:
            self._stop_waiting()
            self._deadline = self.loop.call_later(limits.head_seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Connection
