"""Batches of concurrent requests: what arrives while calls are under way goes together into the next call."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")


class Gather(Generic[Given, Found]):
    """Makes a few calls at a time, each with as many of the waiting requests as it may have."""

    def __init__(self, call: Callable[[Sequence[Given]], Awaitable[Sequence[Found]]], *, most: int, calls: int) -> None:
        self._call, self._most, self._free = call, most, calls
        self._waiting: deque[tuple[Given, asyncio.Future[Found]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def get(self, requests: Sequence[Given]) -> list[Found]:
        """Return the results, in order; a call that fails raises its error for all requests in it."""
        futures: list[asyncio.Future[Found]] = [asyncio.get_running_loop().create_future() for _ in requests]
        self._waiting.extend(zip(requests, futures, strict=True))
        self._start()
        return list(await asyncio.gather(*futures))

    def _start(self) -> None:
        while self._free and self._waiting:
            some = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            wanted = [(request, future) for request, future in some if not future.done()]  # a caller may have gone
            if wanted:
                self._free -= 1
                running = asyncio.get_running_loop().create_task(self._run(wanted))
                self._running.add(running)
                running.add_done_callback(self._running.discard)

    async def _run(self, some: Sequence[tuple[Given, "asyncio.Future[Found]"]]) -> None:
        try:
            found = await self._call([request for request, _ in some])
        except BaseException as error:
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(some, found, strict=True):
                if not future.done():
                    future.set_result(result)
        finally:
            self._free += 1
            self._start()
