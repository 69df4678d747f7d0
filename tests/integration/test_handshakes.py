"""TLS handshakes at a listener: they count as connections, and those that do not end are cut off."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from fastapi import FastAPI
from tests.unit.authority import HERE, Authority

from secemb_party.http import event_loop
from secemb_party.http.connection_limits import ConnectionLimits
from secemb_party.http.listeners import Listener, serve
from secemb_tools.local.process import free_ports

LIMITS = ConnectionLimits(connections=4, head_seconds=60.0, idle_seconds=60)
HELLO = b"\x16\x03\x01\x02\x00"  # the beginning of one
REQUEST = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


class WithoutUvloop(asyncio.SelectorEventLoop):
    """As on platforms that do not have it."""

    create_server = event_loop.EventLoop.create_server


@pytest.fixture(params=[event_loop.EventLoop, WithoutUvloop], ids=["uvloop", "asyncio"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/hello")
    async def hello() -> str:
        return "hello"

    return made


@asynccontextmanager
async def listening(limits: ConnectionLimits, authority: Authority) -> AsyncIterator[int]:
    cert, key = authority.issue()
    [port], stop = free_ports(1), asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()

    listener = Listener(app=app(), host=HERE, port=port, cert=cert, key=key, limits=limits)
    served = asyncio.create_task(serve([listener], until_stopped))
    while True:
        with suppress(ConnectionError):
            (await asyncio.open_connection(HERE, port))[1].close()
            break
        await asyncio.sleep(0.02)
    try:
        yield port
    finally:
        stop.set()
        await served


async def asks(port: int, authority: Authority) -> bool:
    """Tell whether a client gets an answer; its request is sent with the end of the handshake."""
    context = ssl.create_default_context(cafile=str(authority.file))
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection(HERE, port, ssl=context, server_hostname=HERE)
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(7) == b'"hello"'
        writer.close()
        return head.startswith(b"HTTP/1.1 200")
    return False


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """Tell whether the server closes the connection soon."""
    try:
        async with asyncio.timeout(20.0):
            with suppress(ConnectionError):
                await reader.read()
        return True
    except TimeoutError:
        return False


def test_a_client_that_begins_tls_and_says_nothing_is_cut_off(
    runner: asyncio.Runner, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with listening(LIMITS, authority) as port:
            monkeypatch.setattr(event_loop, "HANDSHAKE_SECONDS", 0.1)
            for begin in (b"", HELLO, b"no TLS at all\r\n\r\n"):
                reader, writer = await asyncio.open_connection(HERE, port)
                writer.write(begin)
                assert await is_cut(reader)
                writer.close()
            monkeypatch.undo()
            assert await asks(port, authority)

    with runner:
        runner.run(play())


def test_handshakes_count_as_connections_and_give_their_places_back(
    runner: asyncio.Runner, authority: Authority
) -> None:
    async def play() -> None:
        async with listening(LIMITS, authority) as port:
            assert await asks(port, authority)
            silent = [await asyncio.open_connection(HERE, port) for _ in range(LIMITS.connections)]
            for _, writer in silent[1:]:
                writer.write(HELLO)
            beyond = [await asyncio.open_connection(HERE, port) for _ in range(3)]
            for reader, writer in beyond:
                assert await is_cut(reader)
                writer.close()
            assert not await asks(port, authority)
            for _, writer in silent:
                writer.close()
            for _ in range(200):  # the server may not have noticed yet
                if await asks(port, authority):
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("nobody else is let in")

    with runner:
        runner.run(play())


def test_a_server_ends_while_clients_are_in_the_middle_of_a_handshake(
    runner: asyncio.Runner, authority: Authority
) -> None:
    async def play() -> None:
        async with asyncio.timeout(20.0):
            async with listening(LIMITS, authority) as port:
                reader, writer = await asyncio.open_connection(HERE, port)
                writer.write(HELLO)
            assert await is_cut(reader)
            writer.close()

    with runner:
        runner.run(play())
