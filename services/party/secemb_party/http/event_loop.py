"""The event loop of a server: uvloop's where there is one. It accepts TLS connections one by one, and counts them.

Left to itself, an event loop shows a connection only when its TLS handshake has ended. Clients that say nothing would
not count, and take memory for a minute each.
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
    except ModuleNotFoundError:  # it does not exist for every platform
        from asyncio import SelectorEventLoop as _Loop

HANDSHAKE_SECONDS = 10.0  # as the head of a request has
_PAUSE_SECONDS = 1.0  # after a connection that could not be accepted: there may be too many open files


class EventLoop(_Loop):
    """Counts clients that begin TLS, and gives them less than asyncio's minute."""

    async def create_server(self, protocol_factory: Callable[[], Any], *arguments: Any, **named: Any) -> Any:
        """Listen; with `ssl`, for protocols that tell whether there is room."""
        context = named.get("ssl")
        if context is None:
            return await super().create_server(protocol_factory, *arguments, **named)
        host, port, backlog = named["host"], named["port"], named.get("backlog", 100)
        found = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        places = dict.fromkeys((family, address) for family, _, _, _, address in found)
        sockets = [socket.create_server(at[:2], family=family, backlog=backlog) for family, at in places]
        return TlsServer(self, sockets, protocol_factory, context)


class TlsServer:
    """Listening sockets whose connections begin with a TLS handshake; as much of `asyncio.Server` as uvicorn needs."""

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
        """Wait until nothing is accepted any more."""
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
            await asyncio.sleep(0)  # a flood of connections leaves time for everything else

    async def _shake_hands(self, client: socket.socket, protocol: Any) -> None:
        """Wait for the end of a handshake; from then on the connection counts itself."""
        with suppress(OSError):  # it failed or took too long, or the client has gone
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
