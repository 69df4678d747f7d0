"""The proxy that counts: every byte, by request, both ways, with and without TLS; and what is made of it."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import httpx
import pytest

from secemb_lab.wire.proxy import HERE, Passed, proxy
from secemb_lab.wire.rounds import Moved, total
from secemb_lab.wire.wire import keeps
from secemb_tools.operate.certificate import make_identity

pytestmark = pytest.mark.asyncio
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Run a server that says five bytes to every request; yield its port."""
    talking: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
                await reader.readexactly(int(found[1]) if (found := re.search(r"content-length: (\d+)", head)) else 0)
                writer.write(HEAD + b"hello")

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.add(asyncio.ensure_future(talk(reader, writer)))

    async with await asyncio.start_server(accept, HERE, 0) as server:
        yield server.sockets[0].getsockname()[1]
    for one in talking:
        one.cancel()
    await asyncio.gather(*talking, return_exceptions=True)


def sent(response: httpx.Response) -> int:
    """Return the length of a request as HTTP/1.1 writes it."""
    request = response.request
    lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in request.headers.raw]
    return len("\r\n".join(lines)) + 4 + len(request.content)


async def test_every_byte_is_counted_under_its_request() -> None:
    async with serving() as target, proxy(target) as (port, passed):
        async with httpx.AsyncClient(base_url=f"http://{HERE}:{port}") as client:
            one = await client.get(f"/v1/tasks/{'ab' * 32}")
            two = await client.put("/v1/rounds/1/sessions/2/relayed-keys", content=bytes(200_000))
        down = len(HEAD) + 5
        assert passed.take() == {"task": (sent(one), down), "relayed-keys": (sent(two), down)}
        assert passed.take() == {}


async def test_tls_is_counted_with_its_handshake_and_records(tmp_path: Path) -> None:
    identity, files = make_identity(HERE), (tmp_path / "crt", tmp_path / "key")
    files[0].write_bytes(identity.certificate)
    files[1].write_bytes(identity.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    trust = ssl.create_default_context(cafile=str(files[0]))
    more: list[tuple[int, int]] = []
    async with (
        serving() as target,
        proxy(target, tls=context) as (ends, inner),
        proxy(ends) as (port, outer),
        httpx.AsyncClient(base_url=f"https://{HERE}:{port}", verify=trust) as client,
    ):
        for _ in range(2):
            await client.put("/x", content=bytes(50_000))
            plain, wrapped = total(inner.take()), total(outer.take())
            more.append((wrapped[0] - plain[0], wrapped[1] - plain[1]))
    first, second = more
    assert first[0] > second[0] + 300
    assert first[1] > second[1] + 600
    assert second[0] % 22 == 0  # 22 bytes a record, and no handshake
    assert 4 <= second[0] // 22 <= 8


async def test_bytes_that_no_request_begins_belong_to_the_one_under_way() -> None:
    passed = Passed()
    for way, chunk in ((0, b"PUT /a/keys HTTP/1.1\r\n\r\n"), (0, b"body"), (1, b"answer"), (1, b" goes on")):
        passed.count(way, chunk)
    assert passed.take() == {"keys": (28, 14)}


async def test_what_is_fetched_once_in_a_life_is_no_part_of_the_first_round() -> None:
    join, task = {"join": (10, 20)}, {"task": (5, 100)}
    relayed = Moved(first=join | task | {"relay": (3, 7)}, later=join, reconnected=join).figures()
    assert relayed == {"once": (8, 107), "first": (10, 20), "later": (10, 20), "reconnected": (10, 20)}
    # A direct device asks server 1 in every round; only what the first round has beyond that is apart.
    direct = Moved(first=join | {"task": (15, 300)}, later=join | task, reconnected=join | task).figures()
    assert (direct["once"], direct["first"], direct["later"]) == ((10, 200), (15, 120), (15, 120))


CASES = [((5, 5), (5, 5), True), ((6, 5), (5, 5), False), ((5, 5), (5, 6), False)]


@pytest.mark.parametrize(("first", "later", "kept"), CASES)
async def test_a_limit_is_for_the_first_round_as_for_all_others(
    first: tuple[int, int], later: tuple[int, int], kept: bool
) -> None:
    assert keeps({"limit": (5, 5), "relayed": {"first": first, "later": later}}) is kept
