"""The protocol without I/O. A device's steps are generators that yield effects; a driver carries them out and sends
back the results. The steps touch no socket, no disk and no clock, so that the same code serves async and blocking
programs, tests with a faulty network, and other HTTP stacks.

    Send    requests, at the same time      → an answer or `Lost` for each, in the same order
    Pause   for some seconds                → None
    Work    computing or writing to disk    → what the function returns; a driver may run it in a thread
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_LONG_SECONDS = 1.0  # shorter waits are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to server 0 or 1."""

    server: int
    method: str
    path: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    most: int = 1 << 20  # bytes; a longer answer is not read
    seconds: float = 60.0  # for the whole request and its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no complete answer; whether the request arrived is not known."""

    reason: str
    sent: int | None = None  # bytes of the request's body that were handed over; None: perhaps all
    received: int = 0  # bytes of the answer's body
    untrusted: bool = False  # the reason lies with the certificate or the port: to send it again would not help


@dataclass(frozen=True, slots=True)
class Send:
    """Send all of these, at the same time."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds; `why` is for whoever looks on, if it is worth telling."""

    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """Call this function; it takes too long for an event loop."""

    function: Callable[[], Any] = field(repr=False)


Effect: TypeAlias = Send | Pause | Work
Steps: TypeAlias = Generator[Effect, Any, Result]


def send(*requests: Request) -> Steps[list[Answer | Lost]]:
    """Send requests and return what came back."""
    answers: list[Answer | Lost] = yield Send(requests)
    return answers


def pause(seconds: float, why: str = "") -> Steps[None]:
    """Wait."""
    yield Pause(seconds, why)


def work(function: Callable[[], Result]) -> Steps[Result]:
    """Return what the function returns."""
    result: Result = yield Work(function)
    return result


class AsyncTransport(Protocol):
    """Carries requests on an event loop."""

    async def send(self, request: Request) -> Answer | Lost:
        """Return the answer to one request, or that it was lost."""


class BlockingTransport(Protocol):
    """Carries requests while the caller waits."""

    def send_all(self, requests: tuple[Request, ...]) -> list[Answer | Lost]:
        """Return the answers to requests that are sent at the same time, in their order."""


async def drive_async(
    steps: Steps[Result], transport: AsyncTransport, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Result:
    """Carry out steps on the running event loop; work is done in a thread."""

    async def carry_out(effect: Effect) -> Any:
        match effect:
            case Send(requests):
                return await send_together(transport, requests)
            case Pause(seconds, why):
                _tell_wait(seconds, why)
                return await sleep(seconds)
            case Work(function):
                return await _in_thread(function)

    try:
        effect = next(steps)
        while True:
            try:
                found = await carry_out(effect)
            except Exception as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(found)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        steps.close()


def drive_blocking(
    steps: Steps[Result], transport: BlockingTransport, *, sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Carry out steps and return when they end."""

    def carry_out(effect: Effect) -> Any:
        match effect:
            case Send(requests):
                return transport.send_all(requests)
            case Pause(seconds, why):
                _tell_wait(seconds, why)
                return sleep(seconds)
            case Work(function):
                return function()

    try:
        effect = next(steps)
        while True:
            try:
                found = carry_out(effect)
            except Exception as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(found)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        steps.close()


def _tell_wait(seconds: float, why: str) -> None:
    if why and seconds >= _LONG_SECONDS:
        _LOG.info("%s; trying again in %d seconds", why, math.ceil(seconds))


async def send_together(transport: AsyncTransport, requests: tuple[Request, ...]) -> list[Answer | Lost]:
    """Send all and wait for all, even if one fails: no request is left behind."""
    sending = (transport.send(request) for request in requests)
    found = await asyncio.gather(*sending, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


async def _in_thread(function: Callable[[], Result]) -> Result:
    """Run a function in a thread; when cancelled, wait until it has ended, so that it cannot write to a closed home."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # cancelled again, but a thread cannot be stopped
        if not running.cancelled():
            running.exception()  # retrieved, because the caller is gone
        raise
