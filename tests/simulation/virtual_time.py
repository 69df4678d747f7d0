"""Time that passes only when nobody has anything to do: hours of a fleet in seconds, in the order of the clock."""

import asyncio
import heapq
import itertools
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.pair import Clock


@dataclass
class VirtualTime:
    """Actors that sleep by a clock of their own; it is turned to the next wake-up when all of them sleep."""

    clock: Clock
    _sleepers: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)
    _busy: int = 0
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        """Sleep by the virtual clock."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.clock.now + max(seconds, 0.0), next(self._order), woken))
        self._rest()
        await woken

    async def run(self, *actors: Coroutine[Any, Any, None]) -> None:
        """Run actors until all of them have ended."""
        self._busy = len(actors)
        tasks = [asyncio.create_task(self._act(actor)) for actor in actors]
        try:
            while not all(task.done() for task in tasks):
                await self._quiet.wait()
                for task in tasks:
                    if task.done():
                        task.result()
                if self._sleepers:
                    self._wake()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        at, _, woken = heapq.heappop(self._sleepers)
        self.clock.now = max(self.clock.now, at)
        self._busy += 1
        self._quiet.clear()
        woken.set_result(None)

    async def _act(self, actor: Coroutine[Any, Any, None]) -> None:
        try:
            await actor
        finally:
            self._rest()

    def _rest(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._quiet.set()
