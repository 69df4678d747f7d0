"""A TCP proxy that counts every byte, and may delay bytes or terminate TLS."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

HERE = "127.0.0.1"
UP, DOWN = 0, 1
_CHUNK = 1 << 16
_REQUEST = re.compile(rb"(?:GET|POST|PUT) (\S+) HTTP/1\.1\r\n")
_TASK = re.compile(r"[0-9a-f]{64}")

Bytes = tuple[int, int]  # up, down


@dataclass(slots=True)
class Passed:
    """The bytes that passed: TCP payload, so HTTP headers are included and, with TLS, all of TLS."""

    requests: dict[str, list[int]] = field(default_factory=dict)  # up and down, by the last word of the address
    _current: str = ""  # encrypted requests have no name

    def count(self, way: int, chunk: bytes) -> None:
        """Add bytes to the current request; a device has one open request per server."""
        if way == UP and (found := _REQUEST.match(chunk)):
            word = found[1].decode("ascii").rsplit("/", 1)[-1]
            self._current = "task" if _TASK.fullmatch(word) else word
        self.requests.setdefault(self._current, [0, 0])[way] += len(chunk)

    def take(self) -> dict[str, Bytes]:
        """Return the bytes that passed since the last call, by request."""
        taken = {name: (up, down) for name, (up, down) in self.requests.items() if up or down}
        self.requests = {}
        return taken


@asynccontextmanager
async def proxy(
    target: int, *, port: int = 0, seconds: float = 0.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, Passed]]:
    """Run a proxy to a port of this machine; yield its own port, `port` if that is given, and what passes.

    `seconds` is the delay of each byte in each direction. With `tls` clients speak TLS, which is terminated here; the
    bytes inside it are counted.
    """
    passed, serving = Passed(), set[asyncio.Task[None]]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                there_reader, there_writer = await asyncio.open_connection(HERE, target)
            except OSError:  # nothing is listening there, or not yet
                return
            with closing(there_writer):
                await asyncio.gather(
                    _pump(reader, there_writer, seconds, passed, UP), _pump(there_reader, writer, seconds, passed, DOWN)
                )

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(carry(reader, writer)))

    server = await asyncio.start_server(serve, HERE, port, ssl=tls)
    try:
        async with server:
            yield int(server.sockets[0].getsockname()[1]), passed
    finally:
        for one in serving:
            one.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float, passed: Passed, way: int
) -> None:
    """Carry bytes in one direction; the delay of one chunk does not delay the next."""
    loop, held = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, chunk = await held.get()
            if not chunk:
                break
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            writer.write(chunk)
            with suppress(ConnectionError):
                await writer.drain()
        writer.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(deliver())
        chunk = b"."
        while chunk:
            try:
                chunk = await reader.read(_CHUNK)
            except (ConnectionError, ssl.SSLError):
                chunk = b""
            passed.count(way, chunk)
            held.put_nowait((loop.time() + seconds, chunk))
