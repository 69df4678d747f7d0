"""Bounded worker threads around the kernel: evaluation never runs on the event loop.

A place in the queue is taken before a request's body is read, so that a crowded server says so at once and holds
nothing for those it turns away.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from secemb_shared.errors import SecEmbError

Result = TypeVar("Result")


class BusyError(SecEmbError):
    """Every place in the queue is taken; come back later."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the server is busy; try again after the time in Retry-After")
        self.retry_after = retry_after


class Workers:
    """A few threads and a queue with an end."""

    def __init__(self, *, threads: int, queue: int, retry_after: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kernel")
        self._limit = threads + queue
        self._retry_after = retry_after
        self._taken = 0

    @property
    def taken(self) -> int:
        """Return how many places are taken, for metrics."""
        return self._taken

    @property
    def limit(self) -> int:
        """Return how many places there are."""
        return self._limit

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place for the length of a request, or raise `BusyError` at once."""
        if self._taken >= self._limit:
            raise BusyError(self._retry_after)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for what is running and end the threads."""
        self._pool.shutdown(wait=True)
