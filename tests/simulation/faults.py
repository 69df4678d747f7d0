"""What the simulation may do to the two servers: cut the line between them, and kill one at any write."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

from secemb_party.ledger.database import Database, Work
from secemb_party.storage import Model, ModelFiles, ModelStep, OptimiserState, ShareFiles

T = TypeVar("T")


class LostError(httpx.TransportError):
    """A request or its answer got lost on the way."""


class CrashedError(Exception):
    """The process is gone: nothing it would have done after this happens."""


@dataclass
class Line:
    """What happens to the next calls from server 0 to server 1."""

    lose_requests: int = 0
    let_pass: int = 0  # calls that succeed before responses are lost
    lose_responses: int = 0
    hold_requests: int = 0  # lost for the sender, and delivered later all the same
    held: deque[httpx.Request] = field(default_factory=deque)
    broken: list[str] = field(default_factory=list)  # answers that no server may ever give
    reply: Callable[[httpx.Request], httpx.Response] | None = None  # whoever answers in place of server 1
    tamper: Callable[[bytes], bytes] | None = None  # what a bad server 0 makes of the frames that it passes on
    tamper_reply: Callable[[bytes], bytes] | None = None  # and of the replies


@dataclass
class Fuse:
    """Kills a server at one of its next durable writes, just before it or just after."""

    writes: int | None = None  # so many more succeed
    after: bool = False
    dead: bool = False

    def light(self, writes: int, *, after: bool) -> None:
        """Let the server die at a write, counted from 0."""
        self.writes, self.after = writes, after

    def burns(self) -> bool:
        """Count a write; return whether it is the last one."""
        if self.dead:
            raise CrashedError
        if self.writes is None:
            return False
        self.writes -= 1
        self.dead = self.writes < 0
        return self.dead


class FusedDatabase:
    """A ledger's database that dies with its server."""

    def __init__(self, inner: Database, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    async def read(self, work: Work[T]) -> T:
        if self._fuse.dead:
            raise CrashedError
        return await self._inner.read(work)

    async def write(self, work: Work[T]) -> T:
        if not self._fuse.burns():
            return await self._inner.write(work)
        if self._fuse.after:
            await self._inner.write(work)
        raise CrashedError

    async def claim(self, *, patience: float = 0.0, shared: bool = False) -> None:
        """A server that crashed is started again while its old ledger may still be open."""

    async def conduct(self) -> bool:
        return True

    async def close(self) -> None:
        await self._inner.close()


class FusedModels(ModelFiles):
    """A model store that dies with its server."""

    fuse: Fuse

    def save(self, model: Model) -> bytes:
        return _burn(self.fuse, lambda: super(FusedModels, self).save(model))

    def save_step(self, step: ModelStep) -> Model:
        return _burn(self.fuse, lambda: super(FusedModels, self).save_step(step))

    def replace(self, model: Model) -> None:
        _burn(self.fuse, lambda: super(FusedModels, self).replace(model))

    def save_state(self, state: OptimiserState) -> None:
        _burn(self.fuse, lambda: super(FusedModels, self).save_state(state))


class FusedShares(ShareFiles):
    """A share store that dies with its server."""

    fuse: Fuse

    def save(self, round_id: bytes, list_digest: bytes, data: bytes | memoryview) -> bytes | None:
        return _burn(self.fuse, lambda: super(FusedShares, self).save(round_id, list_digest, data))


def _burn(fuse: Fuse, write: Callable[[], T]) -> T:
    if not fuse.burns():
        return write()
    if fuse.after:
        write()
    raise CrashedError


class FaultyLine(httpx.AsyncBaseTransport):
    """Carries calls to server 1, and loses some on purpose."""

    def __init__(self, line: Line, deliver: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> None:
        self._line, self._deliver = line, deliver

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        line = self._line
        if request.url.path == "/peer/v1/relay" and line.tamper is not None:
            request = _with_body(request, line.tamper(await request.aread()))
        if line.reply is not None:
            return line.reply(request)
        if line.lose_requests:
            line.lose_requests -= 1
            raise LostError("request lost")
        if line.hold_requests:
            line.hold_requests -= 1
            line.held.append(request)
            raise LostError("request held up")
        response = await self._deliver(request)
        if line.let_pass:
            line.let_pass -= 1
        elif line.lose_responses:
            line.lose_responses -= 1
            raise LostError("response lost")
        if request.url.path == "/peer/v1/relay" and line.tamper_reply is not None:
            return httpx.Response(response.status_code, content=line.tamper_reply(await response.aread()))
        return response


def _with_body(request: httpx.Request, body: bytes) -> httpx.Request:
    headers = {**request.headers, "content-length": str(len(body))}
    return httpx.Request(request.method, request.url, headers=headers, content=body)
