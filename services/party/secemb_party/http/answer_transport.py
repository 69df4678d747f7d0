"""A transport that sends the head of an answer together with the beginning of its body."""

import asyncio
from collections.abc import Iterable
from typing import Any


class AnswerTransport(asyncio.Transport):
    """Holds the first bytes of an answer until the next ones are written, or for one turn of the event loop.

    uvicorn writes the head and the body of an answer one after the other, and an event loop makes a system call and a
    packet of each. For an answer of a few bytes, the second packet costs a fifth of the whole request.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None
        self._later: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send what is held together with this, or hold this."""
        held = self._take()
        if held is not None:
            self._transport.writelines((held, data))
        else:
            self._held, self._later = bytes(data), self._loop.call_soon(self.flush)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send everything at once."""
        self.flush()
        self._transport.writelines(list_of_data)

    def flush(self) -> None:
        """Send what is held."""
        held = self._take()
        if held is not None:
            self._transport.write(held)

    def _take(self) -> bytes | None:
        held, later, self._held, self._later = self._held, self._later, None, None
        if later is not None:
            later.cancel()
        return held

    def close(self) -> None:
        """Send what is held, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending what is held."""
        self._take()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closing or closed."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()
