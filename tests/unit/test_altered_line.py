"""A byte that is altered on the line to server 1: TLS notices, and server 0 takes it for a server 1 that is away."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.loopback import answer, serving, write_identity
from tests.unit.test_relay import QUICK, frame

from secemb_party.errors import PeerUnavailableError
from secemb_server0.peer import HttpPeer, HttpRelayLine
from secemb_server0.peer_transport import PeerClient, PeerTransport
from secemb_server0.relay import Relay

pytestmark = pytest.mark.asyncio

CALLS: dict[str, Callable[[httpx.AsyncClient], "asyncio.Future[object]"]] = {
    "the leader": lambda client: asyncio.ensure_future(HttpPeer(client, scratch=Path("unused")).standing()),
    "the relay key": lambda client: asyncio.ensure_future(HttpRelayLine(client).relay_key()),
    "the relay": lambda client: asyncio.ensure_future(Relay(HttpRelayLine(client), limits=QUICK).pass_on(frame(1), 16)),
}


@asynccontextmanager
async def altering(target: int) -> AsyncIterator[int]:
    """Run a proxy that changes the last byte of whatever comes back once the handshake is over; yield its port."""
    carrying = set[asyncio.Task[None]]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        sent = 0

        async def up() -> None:
            nonlocal sent
            while piece := await reader.read(1 << 16):
                sent += 1
                there_writer.write(piece)
            there_writer.close()

        async def down() -> None:
            while piece := await there_reader.read(1 << 16):
                writer.write(piece if sent < 2 else piece[:-1] + bytes([piece[-1] ^ 1]))
            writer.close()

        with closing(writer), closing(there_writer):
            await asyncio.gather(up(), down(), return_exceptions=True)

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrying.add(asyncio.ensure_future(carry(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with server:
            yield int(server.sockets[0].getsockname()[1])
    finally:
        for one in carrying:
            one.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
        await asyncio.sleep(0)  # closed connections are gone in the loop's next turn


def line_to(port: int, authority: Path) -> httpx.AsyncClient:
    """Return a line as server 0 has it, to whoever listens there."""
    context = ssl.create_default_context(cafile=str(authority))
    transport = PeerTransport(lambda: context)
    timeout = httpx.Timeout(5.0, connect=0.3)
    return PeerClient(f"https://127.0.0.1:{port}", transport=transport, bearer=lambda: "anybody", timeout=timeout)


@pytest.mark.parametrize("call", CALLS)
async def test_a_record_that_was_altered_is_a_server_1_that_is_away(call: str, tmp_path: Path) -> None:
    both, alone, _ = write_identity(tmp_path, "server1")
    with serving(answer(bytes(112)), identity=both) as server:
        async with (
            altering(int(server.url.rsplit(":", 1)[1])) as port,
            line_to(port, alone) as client,
        ):
            with pytest.raises(PeerUnavailableError):
                await CALLS[call](client)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("how", ["nobody listens", "silent", "cut"])
async def test_who_cannot_shake_hands_is_away(call: str, how: str, tmp_path: Path) -> None:
    _, alone, _ = write_identity(tmp_path, "server1")
    held = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append((reader, writer))
        if how == "cut":
            writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        if how == "nobody listens":
            server.close()
        async with line_to(port, alone) as client:
            with pytest.raises(PeerUnavailableError):
                await CALLS[call](client)
        for _, writer in held:
            writer.close()


async def test_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    both, _, _ = write_identity(tmp_path, "server1")
    _, other, _ = write_identity(tmp_path, "other")
    with serving(answer(bytes(112)), identity=both) as server:
        async with line_to(int(server.url.rsplit(":", 1)[1]), other) as client:
            with pytest.raises(PeerUnavailableError, match="is not server 1"):
                await CALLS["the relay key"](client)


async def test_a_long_answer_comes_whole_and_over_one_connection(tmp_path: Path) -> None:
    both, alone, _ = write_identity(tmp_path, "server1")
    body = bytes(range(256)) * 40_000  # ten times what waits at most
    with serving(answer(body), identity=both) as server:
        async with line_to(int(server.url.rsplit(":", 1)[1]), alone) as client:
            assert [(await client.get("/")).content == body for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("error", [ssl.SSLError(1, "bad record mac"), ConnectionResetError(), httpx.ReadError("cut")])
@pytest.mark.parametrize("call", CALLS)
async def test_however_the_line_fails_server_1_is_away(call: str, error: Exception) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise error

    async with httpx.AsyncClient(transport=httpx.MockTransport(fail), base_url="https://server1") as client:
        with pytest.raises(PeerUnavailableError):
            await CALLS[call](client)


async def test_a_call_may_have_a_time_limit_of_its_own_and_nothing_that_the_line_does_not_know() -> None:
    async with line_to_nobody() as client:
        assert client.build_request("GET", "/x").extensions["timeout"]["read"] == 5.0
        assert client.build_request("GET", "/x", timeout=1.0).extensions["timeout"]["read"] == 1.0
        unknown: list[dict[str, Any]] = [{"json": {"a": "b"}}, {"params": {"a": "b"}}, {"data": {"a": "b"}}]
        for one in unknown:
            with pytest.raises(TypeError, match="headers, content and timeout"):
                client.build_request("POST", "/x", **one)


def line_to_nobody() -> httpx.AsyncClient:
    return PeerClient(
        "https://nobody", transport=httpx.MockTransport(_gone), bearer=lambda: "x", timeout=httpx.Timeout(5.0)
    )


def _gone(_: httpx.Request) -> httpx.Response:
    raise AssertionError("nothing is sent")
