"""Requests over HTTP with httpx: on the caller's event loop, or on a separate one while the caller waits.

Redirects are not followed, proxies and credentials of the environment are not used, cookies are not kept, nothing is
decompressed, and no more of an answer is read than its request allows. A request's timeout covers the whole request,
so a server that sends its answer byte by byte times out like one that sends nothing.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar

import httpx

from secemb_sdk.errors import EventLoopError
from secemb_sdk.steps import Answer, Lost, Request, send_together
from secemb_sdk.trust import Authorities, Pins, check_address, line_problem, make_context, tls_problem

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 30.0  # without a byte, after which the connection is considered dead
_LIMITS = httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=30.0)
_TOO_LONG = "the response is too long"
_TOO_SLOW = "the response took too long"
_USUAL = {"accept-encoding": "identity", "user-agent": "secemb"}  # no version, so that devices look alike
_PIECE = 1 << 14  # bytes of a body passed on at a time: one TLS record

Result = TypeVar("Result")


@dataclass(slots=True)
class _Moved:
    """Bytes of bodies that one exchange has transferred each way."""

    sent: int = 0
    received: int = 0

    def lost(self, reason: str, *, untrusted: bool = False) -> Lost:
        return Lost(reason, sent=self.sent, received=self.received, untrusted=untrusted)


class HttpTransport:
    """Sends requests on an event loop, with a small connection pool for each server."""

    def __init__(self, servers: Sequence[str], *, ca: Authorities = None, pins: Sequence[Pins] | None = None) -> None:
        self._servers = servers
        self._clients = [httpx.AsyncClient(**one) for one in _settings(servers, ca, pins)]

    async def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or `Lost` with the bytes transferred by then."""
        moved = _Moved()
        try:
            async with asyncio.timeout(request.seconds):
                return await self._send(request, moved)
        except TimeoutError:
            return moved.lost(_TOO_SLOW)
        except httpx.HTTPError as error:
            problem = await asyncio.to_thread(tls_problem, error, self._servers[request.server])
            return moved.lost(problem or line_problem(error), untrusted=problem is not None)

    async def _send(self, request: Request, moved: _Moved) -> Answer | Lost:
        client, body = self._clients[request.server], bytearray()
        async with client.stream(**_call(request, moved)) as response:
            if _announces_more(response, request.most):
                return moved.lost(_TOO_LONG)
            async for chunk in response.aiter_raw():
                body += chunk
                moved.received = len(body)
                if moved.received > request.most:
                    return moved.lost(_TOO_LONG)
            return _answer(response, body)

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()


def refuse_event_loop() -> None:
    """Raise if an event loop is running: waiting here would block everything else on it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise EventLoopError(
        "a blocking device cannot be used on an event loop; use `async with Device.open(...)`, or a thread"
    )


class BlockingHttpTransport:
    """Sends requests while the caller waits, on an event loop in a separate thread.

    Without an event loop httpx limits each step of a request but not the whole: a server that sends a byte now and then
    could make it last forever. Here the whole request times out, as on the caller's event loop. A name look-up in the
    operating system cannot be stopped, but the caller does not wait for it.
    """

    def __init__(self, servers: Sequence[str], *, ca: Authorities = None, pins: Sequence[Pins] | None = None) -> None:
        self._transport = HttpTransport(servers, ca=ca, pins=pins)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="secemb-transport", daemon=True)
        self._thread.start()

    def send_all(self, requests: tuple[Request, ...]) -> list[Answer | Lost]:
        """Return the answers to requests that are sent concurrently, in the order of the requests."""
        refuse_event_loop()
        return self._wait_for(send_together(self._transport, requests))

    def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or `Lost`."""
        refuse_event_loop()
        return self._wait_for(self._transport.send(request))

    def close(self) -> None:
        """Close all connections; callers waiting in other threads return."""
        if self._loop.is_closed():
            return
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._transport.aclose()

    def _wait_for(self, doing: Coroutine[Any, Any, Result]) -> Result:
        running = asyncio.run_coroutine_threadsafe(doing, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # the caller was interrupted
            raise


def _settings(servers: Iterable[str], ca: Authorities, pins: Sequence[Pins] | None) -> list[dict[str, Any]]:
    urls = [check_address(url) for url in servers]
    return [
        {
            "base_url": url,
            "verify": make_context(url, ca=ca, pins=wanted),
            "limits": _LIMITS,
            "headers": _USUAL,
            "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none, because cookies would link sessions
            "follow_redirects": False,
            "trust_env": False,
        }
        for url, wanted in zip(urls, pins or ((), ()), strict=True)
    ]


def _call(request: Request, moved: _Moved) -> dict[str, Any]:
    silent, connect = min(_SILENT_SECONDS, request.seconds), min(_CONNECT_SECONDS, request.seconds)
    # Without a length httpx would use chunked encoding.
    length = {"content-length": str(len(request.body))} if request.body else {}
    return {
        "method": request.method,
        "url": request.path,
        "headers": {**request.headers, **length},
        "content": _pieces(request.body, moved) if request.body else None,
        "timeout": httpx.Timeout(silent, connect=connect),
    }


async def _pieces(body: bytes, moved: _Moved) -> AsyncIterator[bytes]:
    """Yield a body in pieces and count them: if the request fails early, the rest was not sent."""
    for start in range(0, len(body), _PIECE):
        piece = body[start : start + _PIECE]
        moved.sent += len(piece)
        yield piece


def _announces_more(response: httpx.Response, most: int) -> bool:
    length = response.headers.get("content-length", "")
    return length.isascii() and length.isdigit() and int(length) > most


def _answer(response: httpx.Response, body: bytearray) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(status=response.status_code, headers=headers, body=bytes(body))
