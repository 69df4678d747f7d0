"""Requests over HTTP with httpx: one for event loops, one for plain programs.

Redirects are not followed, proxies and credentials of the environment are not used, cookies are not kept, nothing is
decompressed, and of an answer no more is read than its request allows.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from secemb_sdk.effects import Answer, Lost, Request
from secemb_sdk.trust import Pins, Trust, check_address, make_context

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 30.0  # no byte for so long: the connection is dead
_LIMITS = httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=30.0)
_TOO_LONG = Lost("the answer is longer than it may be")
_TOO_SLOW = Lost("the answer took too long")
_USUAL = {"accept-encoding": "identity", "user-agent": "secemb"}  # no version: devices look alike


class HttpTransport:
    """Carries requests on an event loop; one small pool of connections for each server."""

    def __init__(self, servers: Sequence[str], *, trust: Trust = None, pins: Sequence[Pins] | None = None) -> None:
        self._clients = [httpx.AsyncClient(**one) for one in _settings(servers, trust, pins)]

    async def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or that it was lost."""
        try:
            async with asyncio.timeout(request.seconds):
                return await self._send(request)
        except TimeoutError:
            return _TOO_SLOW
        except httpx.HTTPError as error:
            return Lost(type(error).__name__)

    async def _send(self, request: Request) -> Answer | Lost:
        client, body = self._clients[request.server], bytearray()
        async with client.stream(**_call(request)) as response:
            if _announces_more(response, request.most):
                return _TOO_LONG
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > request.most:
                    return _TOO_LONG
            return _answer(response, body)

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()


class BlockingHttpTransport:
    """Carries requests while the caller waits, two at a time."""

    def __init__(self, servers: Sequence[str], *, trust: Trust = None, pins: Sequence[Pins] | None = None) -> None:
        self._clients = [httpx.Client(**one) for one in _settings(servers, trust, pins)]
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="secemb-transport")

    def send_all(self, requests: tuple[Request, ...]) -> list[Answer | Lost]:
        """Return the answers to requests that are sent at the same time, in their order."""
        if len(requests) == 1:
            return [self.send(requests[0])]
        return list(self._threads.map(self.send, requests))

    def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or that it was lost."""
        try:
            return self._send(request, time.monotonic() + request.seconds)
        except httpx.HTTPError as error:
            return Lost(type(error).__name__)

    def _send(self, request: Request, end: float) -> Answer | Lost:
        client, body = self._clients[request.server], bytearray()
        with client.stream(**_call(request)) as response:
            if _announces_more(response, request.most):
                return _TOO_LONG
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > request.most:
                    return _TOO_LONG
                if time.monotonic() > end:
                    return _TOO_SLOW
            return _answer(response, body)

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown()
        for client in self._clients:
            client.close()


def _settings(servers: Iterable[str], trust: Trust, pins: Sequence[Pins] | None) -> list[dict[str, Any]]:
    urls = [check_address(url) for url in servers]
    return [
        {
            "base_url": url,
            "verify": make_context(url, trust=trust, pins=wanted),
            "limits": _LIMITS,
            "headers": _USUAL,
            "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none: they would tie sessions together
            "follow_redirects": False,
            "trust_env": False,
        }
        for url, wanted in zip(urls, pins or ((), ()), strict=True)
    ]


def _call(request: Request) -> dict[str, Any]:
    silent, connect = min(_SILENT_SECONDS, request.seconds), min(_CONNECT_SECONDS, request.seconds)
    return {
        "method": request.method,
        "url": request.path,
        "headers": dict(request.headers),
        "content": request.body or None,
        "timeout": httpx.Timeout(silent, connect=connect),
    }


def _announces_more(response: httpx.Response, most: int) -> bool:
    length = response.headers.get("content-length", "")
    return length.isascii() and length.isdigit() and int(length) > most


def _answer(response: httpx.Response, body: bytearray) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(status=response.status_code, headers=headers, body=bytes(body))
