"""Requests over HTTP with httpx, and the addresses, certificates and pinned keys a device trusts."""

import asyncio
import hashlib
import hmac
import ssl
import threading
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from cryptography.exceptions import UnsupportedAlgorithm

from secemb_sdk.errors import AddressError, PinError
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.steps import Answer, Lost, Request, send_together

Trust = ssl.SSLContext | str | Path | None  # a context, a file of authorities (PEM), or what the system trusts
Pins = Collection[str]

_PORTS = {"http": 80, "https": 443}


def check_address(url: str) -> str:
    """Return a server's address in one form; plain HTTP is for this machine alone."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressError("a server's address cannot be read; give one like https://server0.example") from None
    if parts.scheme not in _PORTS or not host or parts.username is not None or parts.query or parts.fragment:
        raise AddressError("a server's address is https:// and a host, without user, query or fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise AddressError("plain http is for loopback addresses only; give the server's https:// address")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{port or _PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its name or number."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_context(url: str, *, trust: Trust = None, pins: Pins = ()) -> ssl.SSLContext:
    """Return the TLS settings for one server; a context that is given is used as it is."""
    wanted = _check_pins(pins)
    if url.startswith("http:"):
        if wanted:
            raise AddressError("a pinned server needs an https:// address")
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody; made because a client wants one
    if isinstance(trust, ssl.SSLContext):
        if wanted:
            raise PinError("pins need contexts of their own; give a file of authorities instead of an SSLContext")
        return trust
    try:
        context = ssl.create_default_context(cafile=None if trust is None else str(trust))
    except OSError:
        raise AddressError("the file of authorities cannot be read; give a PEM file with their certificates") from None
    if wanted:
        _pin(context, wanted)
    return context


def key_digest(certificate: bytes) -> bytes:
    """Return the SHA-256 of the public key in a certificate (DER)."""
    # Here, because only pins need them and they take long to import.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def _pin(context: ssl.SSLContext, pins: frozenset[bytes]) -> None:
    """Let every handshake of this context end with a look at the server's key."""

    class PinnedObject(ssl.SSLObject):
        """A connection over memory, as event loops have it; both clients use one."""

        def do_handshake(self) -> None:
            super().do_handshake()
            _check_key(self, pins)

    context.sslobject_class = PinnedObject


def _check_key(connection: Any, pins: frozenset[bytes]) -> None:
    try:
        shown = key_digest(connection.getpeercert(binary_form=True) or b"")
    except (ValueError, UnsupportedAlgorithm):
        shown = b""
    if not any(hmac.compare_digest(shown, pin) for pin in pins):
        raise PinError(
            "the server shows another key than the pinned ones; nothing was sent to it", noticed=Misconduct.SERVER_KEY
        )


def _check_pins(pins: Pins) -> frozenset[bytes]:
    if isinstance(pins, str):
        raise PinError("pins are a list of digests for each server")
    try:
        found = frozenset(bytes.fromhex(pin) for pin in pins)
    except ValueError:
        found = frozenset({b""})
    if any(len(pin) != hashlib.sha256().digest_size for pin in found):
        raise PinError("a pin is the SHA-256 of a server's public key: 64 hexadecimal digits")
    return found


_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 30.0  # no byte for so long: the connection is dead
_LIMITS = httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=30.0)
_TOO_LONG = "the answer is longer than it may be"
_TOO_SLOW = "the answer took too long"
_USUAL = {"accept-encoding": "identity", "user-agent": "secemb"}  # no version: devices look alike
_PIECE = 1 << 14  # bytes of a body that are handed over at once: as many as fit a record of TLS

Result = TypeVar("Result")


@dataclass(slots=True)
class _Moved:
    """How much of the bodies of one exchange has gone each way."""

    sent: int = 0
    received: int = 0

    def lost(self, reason: str) -> Lost:
        return Lost(reason, sent=self.sent, received=self.received)


class HttpTransport:
    """Carries requests on an event loop; one small pool of connections for each server."""

    def __init__(self, servers: Sequence[str], *, trust: Trust = None, pins: Sequence[Pins] | None = None) -> None:
        self._clients = [httpx.AsyncClient(**one) for one in _settings(servers, trust, pins)]

    async def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or that it was lost and what had moved by then."""
        moved = _Moved()
        try:
            async with asyncio.timeout(request.seconds):
                return await self._send(request, moved)
        except TimeoutError:
            return moved.lost(_TOO_SLOW)
        except httpx.HTTPError as error:
            return moved.lost(type(error).__name__)

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


class BlockingHttpTransport:
    """Carries requests while the caller waits, on an event loop in a thread of its own.

    httpx without an event loop limits each step of a request and not the whole: who sends a byte now and then could
    make it last for ever. Here the end is the same as on an event loop. What cannot be stopped is a look-up of a name
    in the operating system; nobody waits for it either.
    """

    def __init__(self, servers: Sequence[str], *, trust: Trust = None, pins: Sequence[Pins] | None = None) -> None:
        self._transport = HttpTransport(servers, trust=trust, pins=pins)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="secemb-transport", daemon=True)
        self._thread.start()

    def send_all(self, requests: tuple[Request, ...]) -> list[Answer | Lost]:
        """Return the answers to requests that are sent at the same time, in their order."""
        return self._wait_for(send_together(self._transport, requests))

    def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or that it was lost."""
        return self._wait_for(self._transport.send(request))

    def close(self) -> None:
        """Close all connections; whoever waits in another thread waits no longer."""
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
            running.cancel()  # the caller was interrupted: nobody waits for it any more
            raise


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


def _call(request: Request, moved: _Moved) -> dict[str, Any]:
    silent, connect = min(_SILENT_SECONDS, request.seconds), min(_CONNECT_SECONDS, request.seconds)
    # The length is said, or httpx would send what comes in pieces in chunks.
    length = {"content-length": str(len(request.body))} if request.body else {}
    return {
        "method": request.method,
        "url": request.path,
        "headers": {**request.headers, **length},
        "content": _pieces(request.body, moved) if request.body else None,
        "timeout": httpx.Timeout(silent, connect=connect),
    }


async def _pieces(body: bytes, moved: _Moved) -> AsyncIterator[bytes]:
    """Yield a body, and count what has been handed over: where it ends early, the rest has not left."""
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
