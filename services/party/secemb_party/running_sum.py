"""The sum of a round while its updates arrive.

Both checks of an update must evaluate every leaf of a session before it counts, and so must the sum. Therefore sessions
are added as they arrive, in batches, and in the end the few that do not count are subtracted. Everything is a function
of what the ledger holds, so after a crash it is computed again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from secemb_party.compute import PreparedRound, RoundSum
from secemb_party.evaluation import SessionBodies
from secemb_party.logs import get_logger

Read = Callable[[Sequence[bytes]], AsyncIterator[Sequence[SessionBodies]]]


class RunningSum:
    """One party's sum of one training round over the sessions that are complete here."""

    def __init__(self, prepared: Callable[[], Awaitable[PreparedRound]], read: Read, *, batch: int) -> None:
        self._prepared, self._read, self._batch = prepared, read, batch
        self._total: RoundSum | None = None
        self._told: dict[bytes, bytes] = {}  # the sessions in the sum, and the message to the other party about each
        self._waiting: list[bytes] = []
        self._one_at_a_time = asyncio.Lock()
        self._adding: asyncio.Task[None] | None = None

    def arrived(self, session_id: bytes) -> None:
        """Record that a session is complete here; it is added with the next batch, in the background."""
        self._waiting.append(session_id)
        if len(self._waiting) >= self._batch and (self._adding is None or self._adding.done()):
            some, self._waiting = self._waiting, []
            self._adding = asyncio.create_task(self._add_early(some))

    async def _add_early(self, sessions: Sequence[bytes]) -> None:
        try:
            async with self._one_at_a_time:
                await self._include(sessions)
        except Exception as error:  # nothing is lost: the next use of the sum starts again and raises the error
            get_logger().info("cannot add sessions early", error=type(error).__name__)

    async def tell(self, sessions: Sequence[bytes]) -> list[bytes]:
        """Return the messages to the other party about these sessions: one each, always the same."""
        async with self._one_at_a_time:
            await self._include(sessions)
            return [self._told[one] for one in sessions]

    async def share(self, sessions: Sequence[bytes]) -> bytes | memoryview:
        """Return the encoded share of exactly these sessions, including the task's noise."""
        async with self._one_at_a_time:
            total = await self._include(sessions)
            others = sorted(set(self._told) - set(sessions))
            self._total, self._told = None, {}  # a share is made once; if this fails, the next call starts again
            if others:
                async for batch in self._read(others):
                    await total.remove(batch)
            return await total.share()

    async def _include(self, sessions: Sequence[bytes]) -> RoundSum:
        """Add those of the sessions that are not in the sum yet."""
        missing = [one for one in sessions if one not in self._told]
        total, self._total = self._total or (await self._prepared()).sum(), None  # None while a change is in progress
        told, self._told = self._told, {}
        if missing:
            async for batch in self._read(missing):
                messages = await total.add(batch)
                told |= dict(zip([one.session_id for one in batch], messages, strict=True))
        self._total, self._told = total, told
        return total
