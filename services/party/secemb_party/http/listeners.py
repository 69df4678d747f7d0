"""Listeners that start and stop together: the first signal lets requests finish, then everything closes."""

import asyncio
import ctypes
import gc
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from secemb_party.errors import SettingsError
from secemb_party.file_watch import FileWatch
from secemb_party.http.connection_limits import FEW, ConnectionLimits, connection_class
from secemb_party.setting_types import SecretFile
from secemb_party.settings import Listening, Settings

# From <malloc.h> of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 64 << 20  # bytes that each arena may keep
_LARGE = 32 << 20  # bytes: larger blocks are returned to the system at once; the maximum in glibc


def settle() -> None:
    """Tune the process once everything is loaded, before the first request."""
    gc.collect()
    gc.freeze()  # loaded modules stay: searching them for garbage took a tenth of a session's CPU time
    # A round's bodies are read a few megabytes at a time. glibc would return this memory to the system each time, and
    # the system would zero every page when it is needed again.
    with suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)


GRACE_SECONDS = 20
_BACKLOG = 2048
_FLUSH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An app and its address."""

    app: ASGIApp
    host: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    shared: bool = False  # with other processes on this machine: the system deals connections out among them
    client_ca: Path | None = None  # if set, clients must present a certificate from this authority
    limits: ConnectionLimits = FEW


def listeners_of(settings: Settings, *, devices: ASGIApp, operator: ASGIApp | None, metrics: ASGIApp) -> list[Listener]:
    """Return the listeners that both servers have: for devices, for the operator, and for Prometheus."""
    many = ConnectionLimits(connections=settings.devices.connections).for_open_files()
    apps: list[tuple[ASGIApp, Listening, ConnectionLimits]] = [(devices, settings.devices, many)]
    if operator is not None:
        apps.append((operator, settings.operator, FEW))
    with_tls = [
        Listener(
            app=app,
            host=at.host,
            port=at.port,
            cert=at.tls_cert,
            key=at.tls_key.path if at.tls_key is not None else None,
            limits=limits,
            shared=settings.ledger.shared,
        )
        for app, at, limits in apps
    ]
    return [*with_tls, Listener(app=metrics, host=settings.metrics.host, port=settings.metrics.port)]


class _Server(uvicorn.Server):
    """A server that leaves signals to `serve`, which stops all listeners together."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


async def serve(listeners: list[Listener], background: Callable[[], Awaitable[None]] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; `background` is cancelled first, at its next await."""
    servers = [_Server(_config(listener)) for listener in listeners]
    settle()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    running = [
        asyncio.create_task(server.serve(await _shared_sockets(listener) if listener.shared else None))
        for server, listener in zip(servers, listeners, strict=True)
    ]
    work = asyncio.ensure_future(background()) if background is not None else None
    first = asyncio.create_task(stopping.wait())
    await asyncio.wait([first, *running, *([work] if work else [])], return_when=asyncio.FIRST_COMPLETED)
    await _stop(servers, running, work)
    first.cancel()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    for task in [*running, *([work] if work else [])]:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _shared_sockets(listener: Listener) -> list[socket.socket]:
    """Bind an address that other processes of this user may bind too."""
    found = await asyncio.get_running_loop().getaddrinfo(
        listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    places = dict.fromkeys((family, address[:2]) for family, _, _, _, address in found)
    try:
        return [socket.create_server(at, family=family, backlog=_BACKLOG, reuse_port=True) for family, at in places]
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot listen on {listener.host}:{listener.port}: {error}; choose another port") from None


async def _stop(servers: list[_Server], running: list[asyncio.Task[None]], work: asyncio.Future[None] | None) -> None:
    if work is not None and not work.done():
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    for server in servers:
        server.should_exit = True
    farewell = asyncio.create_task(_hang_up(servers))
    await asyncio.wait(running)
    farewell.cancel()


async def _hang_up(servers: list[_Server]) -> None:
    """Close connections that are still open after the last answer: idle TLS clients do not close them."""
    while answering := [task for server in servers for task in server.server_state.tasks]:
        await asyncio.wait(answering)
    await asyncio.sleep(_FLUSH_SECONDS)  # the last answer is on its way
    for server in servers:
        for connection in list(server.server_state.connections):
            connection.transport.abort()


def _tls(listener: Listener, cert: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context that uses the current content of the certificate files at each handshake."""

    def read() -> ssl.SSLContext:
        SecretFile(key)  # refuses a key that others can read
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        if listener.client_ca is not None:
            context.load_verify_locations(listener.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed connection presents no certificate: one that is no longer accepted could be used for hours.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    watch = FileWatch([cert, key, *filter(None, [listener.client_ca])], read)

    def use_newest(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = watch.get()

    first = read()
    first.sni_callback = use_newest  # also called if the client names no host
    return first


def _config(listener: Listener) -> uvicorn.Config:
    cert, key = listener.cert, listener.key
    return uvicorn.Config(
        listener.app,
        host=listener.host,
        port=listener.port,
        ssl_context_factory=(lambda *_: _tls(listener, cert, key)) if cert is not None and key is not None else None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # client addresses are not recorded
        date_header=True,  # devices and the other server use it to compute the remaining time
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=listener.limits.idle_seconds,
        http=connection_class(listener.limits),
        ws="none",
    )
