"""The event loop of a server: uvloop's where there is one, with a deadline for TLS handshakes."""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import SelectorEventLoop as _Loop
else:
    try:
        from uvloop import Loop as _Loop
    except ModuleNotFoundError:  # it does not exist for every platform
        from asyncio import SelectorEventLoop as _Loop

HANDSHAKE_SECONDS = 10.0  # as the head of a request has


class EventLoop(_Loop):
    """Gives clients that begin TLS less than asyncio's minute: until its end they do not count as connections."""

    async def create_server(self, *arguments: Any, **named: Any) -> asyncio.Server:
        """Listen; uvicorn passes no deadline."""
        if named.get("ssl") is not None:
            named.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        return await super().create_server(*arguments, **named)
