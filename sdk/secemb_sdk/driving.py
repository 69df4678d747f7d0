"""Two drivers that carry out what the steps ask for: one for event loops, one for plain programs.

What goes wrong in an effect is raised inside the steps, which may know what to do about it. When the caller is
cancelled or interrupted, the steps are closed where they stand; everything they need to go on is in the home.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from secemb_sdk.effects import Answer, Effect, Lost, Pause, Request, Send, Steps, Work

Result = TypeVar("Result")


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
            case Pause(seconds):
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
            case Pause(seconds):
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


async def send_together(transport: AsyncTransport, requests: tuple[Request, ...]) -> list[Answer | Lost]:
    """Send all and wait for all, also where one fails: no request is left behind."""
    sending = (transport.send(request) for request in requests)
    found = await asyncio.gather(*sending, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


async def _in_thread(function: Callable[[], Result]) -> Result:
    """Run a function in a thread; when cancelled, wait until it has ended, so that nobody writes to a closed home."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # cancelled again; the thread cannot be stopped all the same
        if not running.cancelled():
            running.exception()  # seen: the caller has gone
        raise
