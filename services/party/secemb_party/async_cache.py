"""A cache of expensive results: each is computed once, however many tasks request it, and the last few are kept."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class AsyncCache(Generic[Key, Value]):
    """The most recently used results; a failure is raised in every waiting task, and is not kept."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._futures: OrderedDict[Key, asyncio.Future[Value]] = OrderedDict()

    async def get(self, key: Key, make: Callable[[], Awaitable[Value]]) -> Value:
        """Return the result of `make`, now or from an earlier call. Cancelling a caller does not affect others."""
        future = self._futures.get(key)
        if future is None:
            future = self._futures[key] = asyncio.ensure_future(make())
            future.add_done_callback(lambda done: self._drop_failed(key, done))
        self._futures.move_to_end(key)
        while len(self._futures) > self._size:
            self._futures.popitem(last=False)
        return future.result() if future.done() else await asyncio.shield(future)

    def known(self) -> list[Key]:
        """Return the keys of the results that are kept, the most recently used last."""
        return list(self._futures)

    def drop(self, unwanted: Callable[[Key], bool]) -> None:
        """Drop the results whose keys are unwanted."""
        for key in filter(unwanted, self.known()):
            del self._futures[key]

    def _drop_failed(self, key: Key, done: asyncio.Future[Value]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._futures.get(key) is done:
            del self._futures[key]
