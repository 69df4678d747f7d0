"""What one client can hold of a listener: real sockets that send slowly, without end, or nothing."""

import asyncio
import logging
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from secemb_party.http.connection_limits import ClientWarnings, ConnectionLimits
from secemb_party.http.listeners import Listener, serve
from secemb_tools.local.process import free_ports

pytestmark = pytest.mark.asyncio
LIMITS = ConnectionLimits(connections=4, head_bytes=4096, head_seconds=0.3, idle_seconds=1)
HEAD = b"POST /read HTTP/1.1\r\nHost: x\r\n"


def app() -> FastAPI:
    made = FastAPI()

    @made.post("/read")
    async def read(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    @made.post("/refuse")
    async def refuse() -> Response:
        return PlainTextResponse("no", 429)

    return made


@asynccontextmanager
async def listening(limits: ConnectionLimits) -> AsyncIterator[int]:
    [port] = free_ports(1)
    stop = asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()

    served = asyncio.create_task(
        serve([Listener(app=app(), host="127.0.0.1", port=port, limits=limits)], until_stopped)
    )
    while True:
        with suppress(ConnectionError):
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            break
        await asyncio.sleep(0.02)
    try:
        yield port
    finally:
        stop.set()
        await served


class Client:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> int:
        """Return the status of the next answer, whose body is short."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        await self._reader.readexactly(length)
        return int(head.split()[1])

    def close(self) -> None:
        self._writer.close()

    async def is_cut(self) -> None:
        """Wait until the server has closed the connection."""
        try:
            async with asyncio.timeout(20.0):
                while await self._reader.read(1 << 16):
                    pass
        except ConnectionError:
            pass
        finally:
            self.close()

    async def floods(self, data: bytes) -> int:
        """Send the same bytes over and over until the server closes; return how many it took, about."""
        sent = 0
        try:
            async with asyncio.timeout(20.0):
                while not self._reader.at_eof():
                    await self.send(data)
                    sent += len(data)
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        self.close()
        return sent


@pytest.mark.parametrize(
    "begin", [b"", b"POS", HEAD, HEAD + b"Name: val"], ids=["nothing", "a method", "a line", "half a header"]
)
async def test_a_head_that_does_not_end_is_cut_off(begin: bytes) -> None:
    async with listening(LIMITS) as port:
        client = await Client.to(port)
        await client.send(begin)
        await client.is_cut()


async def test_a_head_that_drips_is_cut_off() -> None:
    async with listening(LIMITS) as port:
        client = await Client.to(port)

        async def drip() -> None:
            for letter in HEAD * 100:
                await client.send(bytes([letter]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        await client.is_cut()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize("kind", ["headers", "one header", "a path", "trailers", "chunk extensions"])
async def test_no_more_of_a_head_is_kept_than_its_limit(kind: str) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    begin, more = {
        "headers": (HEAD, b"a: b\r\n" * 100),
        "one header": (HEAD + b"a: ", b"b" * 600),
        "a path": (b"POST /", b"b" * 600),
        "trailers": (chunked + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 100),
        "chunk extensions": (chunked + b"1;", b"b" * 600),
    }[kind]
    slow = replace(LIMITS, head_seconds=60.0)
    async with listening(slow) as port:
        client = await Client.to(port)
        await client.send(begin)
        assert await client.floods(more) < 16 << 20  # what the sockets of the two sides hold, and not what is sent


async def test_bodies_may_be_long_and_take_their_time() -> None:
    async with listening(LIMITS) as port:
        client = await Client.to(port)
        for _ in range(2):
            await client.send(HEAD + b"Content-Length: 20000\r\n\r\n")
            for _ in range(5):
                await asyncio.sleep(0.15)
                await client.send(bytes(4000))
            assert await client.answer() == 200
        await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"5\r\nabcde\r\n" * 2000) + b"0\r\n\r\n")
        assert await client.answer() == 200
        await client.is_cut()  # idle for too long


async def test_a_body_that_was_refused_unread_does_not_hold_the_connection() -> None:
    async with listening(LIMITS) as port:
        client = await Client.to(port)
        await client.send(HEAD.replace(b"/read", b"/refuse") + b"Content-Length: 1000000\r\n\r\n")
        assert await client.answer() == 429

        async def drip() -> None:
            while True:
                await client.send(b"x")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        await client.is_cut()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_connections_beyond_the_limit_are_closed_and_there_is_room_again_afterwards() -> None:
    async with listening(replace(LIMITS, head_seconds=60.0, idle_seconds=60)) as port:
        clients = [await Client.to(port) for _ in range(4)]
        for client in clients:
            await client.send(HEAD + b"Content-Length: 0\r\n\r\n")
            assert await client.answer() == 200
        await (await Client.to(port)).is_cut()
        for client in clients:
            client.close()
        while True:
            client = await Client.to(port)
            with suppress(ConnectionError, asyncio.IncompleteReadError):  # the server may not have noticed yet
                await client.send(HEAD + b"Content-Length: 0\r\n\r\n")
                assert await client.answer() == 200
                break
            client.close()
        client.close()


UPGRADE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("data", [b"\xff\r\n\r\n", UPGRADE], ids=["garbage", "upgrade"])
async def test_malformed_requests_are_counted_and_not_logged_one_by_one(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(LIMITS) as port:
        for _ in range(20):
            client = await Client.to(port)
            await client.send(data)
            assert await client.answer() in (400, 404)
            client.close()
    about = [one for one in caplog.records if one.name.startswith("uvicorn.error")]
    assert not [one for one in about if one.levelno >= logging.WARNING]
    summaries = [one for one in caplog.records if "malformed" in one.getMessage()]
    assert len(summaries) <= 1


async def test_lines_about_the_servers_own_errors_are_not_withheld(caplog: pytest.LogCaptureFixture) -> None:
    rule = ClientWarnings()

    def passes(level: int, text: str) -> bool:
        return rule.filter(logging.LogRecord("x", level, __file__, 1, text, (), None))

    assert passes(logging.ERROR, "Exception in ASGI application")
    with caplog.at_level(logging.WARNING):
        assert not any(passes(logging.WARNING, "Invalid HTTP request received.") for _ in range(20))
    [line] = [one.getMessage() for one in caplog.records if "malformed" in one.getMessage()]
    assert "Invalid HTTP request received." in line


async def test_there_are_never_more_connections_than_open_files_allow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = [(1024, 1 << 20)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: allowed[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: allowed.append(limits))
    many = ConnectionLimits(connections=4096)
    assert many.for_open_files() == many
    assert allowed[-1] == (4096 + 1280, 1 << 20)
    allowed.append((1024, 2048))
    with caplog.at_level(logging.WARNING):
        assert many.for_open_files().connections == 2048 - 1280
    assert allowed[-1] == (2048, 2048)
