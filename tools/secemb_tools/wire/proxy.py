"""A TCP proxy that counts every byte that passes, and may hold each back for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

HERE = "127.0.0.1"
_CHUNK = 1 << 16


@dataclass(slots=True)
class Passed:
    """What has passed: bytes of TCP's payload, so HTTP headers are in it and, where there is TLS, all of TLS."""

    up: int = 0
    down: int = 0
    connections: int = 0

    def take(self) -> tuple[int, int]:
        """Return what has passed since the last time."""
        taken = self.up, self.down
        self.up = self.down = 0
        return taken


@asynccontextmanager
async def proxy(target: int, *, seconds: float = 0.0) -> AsyncIterator[tuple[int, Passed]]:
    """Run a proxy to a port of this machine; `seconds` is how long each byte is held back on its way, both ways."""
    passed = Passed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed.connections += 1
        try:
            there_reader, there_writer = await asyncio.open_connection(HERE, target)
        except OSError:  # nobody listens there, or not yet
            writer.close()
            return
        with suppress(asyncio.CancelledError):  # the proxy ends before its connections do
            await asyncio.gather(
                _pump(reader, there_writer, seconds, passed, "up"), _pump(there_reader, writer, seconds, passed, "down")
            )

    server = await asyncio.start_server(serve, HERE, 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1]), passed


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float, passed: Passed, way: str
) -> None:
    """Carry bytes in one direction; what is held back does not hold back what comes after it."""
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

    delivering = asyncio.create_task(deliver())
    chunk = b"."
    while chunk:
        try:
            chunk = await reader.read(_CHUNK)
        except ConnectionError:
            chunk = b""
        setattr(passed, way, getattr(passed, way) + len(chunk))
        held.put_nowait((loop.time() + seconds, chunk))
    await delivering
