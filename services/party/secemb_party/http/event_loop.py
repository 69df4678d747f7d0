"""The event loop of a server, uvloop if available. It accepts TLS connections one by one and counts them.

By default, an event loop reports a connection only after its TLS handshake. Clients that send nothing would not be
counted, although each takes memory for a minute.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import SelectorEventLoop as _Loop
else:
    try:
        from uvloop import Loop as _Loop
    except ModuleNotFoundError:  # not available on every platform
        from asyncio import SelectorEventLoop as _Loop

HANDSHAKE_SECONDS = 10.0  # the same as for the headers of a request
_PAUSE_SECONDS = 1.0  # after a connection could not be accepted, perhaps because of too many open files


class EventLoop(_Loop):
    """An event loop that counts TLS handshakes and gives them less than asyncio's minute."""

    async def create_server(self, protocol_factory: Callable[[], Any], *arguments: Any, **named: Any) -> Any:
        """Listen; with `ssl`, the protocols must tell whether there is room."""
        context = named.get("ssl")
        if context is None:
            return await super().create_server(protocol_factory, *arguments, **named)
        if (bound := named.get("sock")) is not None:
            return TlsServer(self, [bound], protocol_factory, context)
        host, port, backlog = named["host"], named["port"], named.get("backlog", 100)
        found = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        places = dict.fromkeys((family, address) for family, _, _, _, address in found)
        sockets = [socket.create_server(at[:2], family=family, backlog=backlog) for family, at in places]
        return TlsServer(self, sockets, protocol_factory, context)


class TlsServer:
    """Listening sockets for TLS connections; implements as much of `asyncio.Server` as uvicorn needs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        protocol_factory: Callable[[], Any],
        context: ssl.SSLContext,
    ) -> None:
        self._loop, self.sockets, self._make, self._context = loop, sockets, protocol_factory, context
        self._handshakes: set[asyncio.Task[None]] = set()
        for one in sockets:
            one.setblocking(False)
        self._accepting = [loop.create_task(self._accept(one)) for one in sockets]

    def close(self) -> None:
        """Accept no more connections, and end the handshakes that are under way."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for one in self.sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Wait until no more connections are accepted."""
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            protocol = self._make()
            if protocol.has_room(len(self._handshakes)):
                task = self._loop.create_task(self._shake_hands(client, protocol))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
            else:
                client.close()
            await asyncio.sleep(0)  # let other tasks run during a flood of connections

    async def _shake_hands(self, client: socket.socket, protocol: Any) -> None:
        """Wait for the end of a handshake; after it the connection is counted separately."""
        with suppress(OSError):  # it failed or took too long, or the client has gone
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
