# ruff: noqa: ASYNC109 - the names of the arguments are httpcore's
"""Connections of the peer line on the event loop's own TLS.

httpx would run TLS in Python, a record of 16 kB at a time; the event loop does it in C. All that passes between the
servers goes through here: shares, models, and in the relayed transport every message of a device.
"""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

_BUFFERED = 1 << 20  # bytes that may wait to be read before the other server is asked to pause


class PeerClient(httpx.AsyncClient):
    """An httpx client for one server: no cookies, redirects or log-ins, which took half of the time of a call."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport, bearer: str, timeout: httpx.Timeout) -> None:
        super().__init__(base_url=url, transport=transport, timeout=timeout)
        self._line = transport
        self._always = {"authorization": f"Bearer {bearer}", "user-agent": "secemb", "accept-encoding": "identity"}

    def build_request(self, method: str, url: httpx.URL | str, **rest: Any) -> httpx.Request:
        """Return a request to a path of the server."""
        headers = self._always | (rest.pop("headers", None) or {})
        content, limits = rest.pop("content", None), rest.pop("timeout", httpx.USE_CLIENT_DEFAULT)
        if unknown := [name for name, value in rest.items() if value is not None]:
            raise TypeError(f"this line knows headers, content and timeout, not {', '.join(unknown)}")
        timeout = self.timeout if limits is httpx.USE_CLIENT_DEFAULT else httpx.Timeout(limits)
        address = str(self.base_url).rstrip("/") + str(url)
        extensions = {"timeout": timeout.as_dict()}
        return httpx.Request(method, address, headers=headers, content=content, extensions=extensions)

    async def send(self, request: httpx.Request, *, stream: bool = False, **_: Any) -> httpx.Response:
        """Send a request and return the answer, whole unless it is to be streamed."""
        answer = await self._line.handle_async_request(request)
        answer.request = request
        if not stream:
            try:
                await answer.aread()
            except BaseException:
                await answer.aclose()
                raise
        return answer


class PeerTransport(httpx.AsyncHTTPTransport):
    """httpx's own transport with these connections in its pool."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(verify=context)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(context),
        )


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect, and shake hands: there is no line without TLS."""
        with _failing_as(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                connected = await asyncio.open_connection(
                    host, port, ssl=self._context, server_hostname=host, limit=_BUFFERED
                )
        return _Stream(*connected)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _failing_as(httpcore.ReadTimeout, httpcore.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _failing_as(httpcore.WriteTimeout, httpcore.WriteError):
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.transport.abort()  # whoever closes here has all that it waited for, or wants none of it

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return self  # it was there from the start

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of a connection that is idle: has the other side ended it?
            return self._reader.at_eof() or self._reader.exception() is not None
        return self._writer.get_extra_info(info)


@contextmanager
def _failing_as(slow: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Let what goes wrong be called as httpx expects it. TLS errors are OSErrors."""
    try:
        yield
    except TimeoutError as error:
        raise slow(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error
