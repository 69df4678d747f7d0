# ruff: noqa: ASYNC109 - the names of the arguments are httpcore's
"""Peer connections over the event loop's own TLS.

httpx would run TLS in Python, one record of 16 kB at a time; the event loop does this in C. All traffic between the two
servers goes through this module: shares, models and, in the relayed transport, every message of a device.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

from secemb_party.logs import current_request, new_request_id

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

_BUFFERED = 1 << 20  # unread bytes before reading from the other server is paused


class PeerClient(httpx.AsyncClient):
    """An httpx client for one server without cookies, redirects and auth, which would take half of a call's time."""

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.AsyncBaseTransport,
        bearer: Callable[[], str],
        timeout: httpx.Timeout,
        tracing: "Tracing | None" = None,
    ) -> None:
        super().__init__(base_url=url, transport=transport, timeout=timeout)
        self._line = transport
        self._bearer = bearer  # the one currently in use
        self._tracing = tracing

    def build_request(self, method: str, url: httpx.URL | str, **rest: Any) -> httpx.Request:
        """Return a request to a path of the server."""
        headers = {
            "authorization": f"Bearer {self._bearer()}",
            "user-agent": "secemb",
            "accept-encoding": "identity",
            "x-request-id": current_request() or new_request_id(),  # server 1 logs under the same id
            **(rest.pop("headers", None) or {}),
        }
        content, limits = rest.pop("content", None), rest.pop("timeout", httpx.USE_CLIENT_DEFAULT)
        if unknown := [name for name, value in rest.items() if value is not None]:
            raise TypeError(f"this client supports headers, content and timeout, not {', '.join(unknown)}")
        timeout = self.timeout if limits is httpx.USE_CLIENT_DEFAULT else httpx.Timeout(limits)
        address = str(self.base_url).rstrip("/") + str(url)
        extensions = {"timeout": timeout.as_dict()}
        return httpx.Request(method, address, headers=headers, content=content, extensions=extensions)

    async def send(self, request: httpx.Request, *, stream: bool = False, **_: Any) -> httpx.Response:
        """Send a request and return the answer, completely read unless it is streamed."""
        with self._traced(request):
            return await self._send(request, stream=stream)

    def _traced(self, request: httpx.Request) -> AbstractContextManager[None]:
        if self._tracing is None:
            return nullcontext()
        return self._tracing.call(request.method, request.url.path, request.headers)

    async def _send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        answer = await self._line.handle_async_request(request)
        answer.request = request
        if not stream:
            try:
                await answer.aread()
            except BaseException:
                await answer.aclose()
                raise
        return answer


class PeerTransport(httpx.AsyncBaseTransport):
    """httpx over a pool of these connections."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context(),  # not used: each connection has TLS from the start
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(context),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a free connection and return the answer before its body is read."""
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _httpx_errors():
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=dict(answer.extensions)
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of an answer as it arrives."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._context = context

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect with TLS, which is required."""
        with _failing_as(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                connected = await asyncio.open_connection(
                    host, port, ssl=self._context(), server_hostname=host, limit=_BUFFERED
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
        self._writer.transport.abort()  # the answer is complete or no longer needed

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return self  # it was started by connect_tcp

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # used for idle connections: has the other side closed it?
            return self._reader.at_eof() or self._reader.exception() is not None
        return self._writer.get_extra_info(info)


# Connection errors of httpcore and their counterparts in httpx.
_ERRORS: dict[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
}


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Raise the pool's errors as httpx's, which callers of an httpx client expect."""
    try:
        yield
    except tuple(_ERRORS) as error:
        raise _ERRORS[type(error)](str(error)) from error


@contextmanager
def _failing_as(slow: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Raise socket errors as httpcore's errors. TLS errors are OSErrors."""
    try:
        yield
    except TimeoutError as error:
        raise slow(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error
