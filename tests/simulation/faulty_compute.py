"""An engine whose workers are lost in any call: before it has done anything, or after it has done everything."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from secemb_party.compute import Accepted, Compute, ComputeUnavailableError, PreparedRound, RoundSum
from secemb_party.evaluation import KeysMessage, SessionBodies
from secemb_shared.messages import RoundSpec
from secemb_shared.row_words import Rows

Result = TypeVar("Result")


@dataclass
class Outage:
    """Which of the next calls fails, and how many have."""

    calls: int | None = None  # so many more succeed
    after: bool = False
    failed: int = 0

    def plan(self, calls: int, *, after: bool) -> None:
        """Let a call fail, counted from 0."""
        self.calls, self.after = calls, after

    async def through(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call, which may be the one that fails."""
        if self.calls is None:
            return await work()
        self.calls -= 1
        if self.calls >= 0:
            return await work()
        self.calls = None
        self.failed += 1
        if self.after:
            await work()
        raise ComputeUnavailableError("a worker was lost")


class FaultySum:
    """A sum that is of no more use once a call has failed."""

    def __init__(self, inner: RoundSum, outage: Outage) -> None:
        self._inner, self._outage, self._lost = inner, outage, False

    async def _call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        assert not self._lost, "a sum was continued that had lost a part"
        self._lost = True
        found = await self._outage.through(work)
        self._lost = False
        return found

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        return await self._call(lambda: self._inner.add(sessions))

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        await self._call(lambda: self._inner.remove(sessions))

    async def share(self) -> bytes | memoryview:
        return await self._call(self._inner.share)


class FaultyRound:
    """A prepared round whose calls may fail."""

    def __init__(self, inner: PreparedRound, outage: Outage) -> None:
        self.inner, self._outage = inner, outage

    @property
    def spec(self) -> RoundSpec:
        return self.inner.spec

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        return await self._outage.through(lambda: self.inner.answer(batch))

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        return await self._outage.through(lambda: self.inner.accept(batch))

    def sum(self) -> RoundSum:
        return FaultySum(self.inner.sum(), self._outage)


class FaultyCompute:
    """Another engine with an outage."""

    def __init__(self, inner: Compute, outage: Outage) -> None:
        self._inner, self._outage = inner, outage

    @property
    def batch(self) -> int:
        return self._inner.batch

    def fault(self) -> str | None:
        return None

    def close(self) -> None:
        self._inner.close()

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> PreparedRound:
        prepared = await self._outage.through(lambda: self._inner.prepare(spec, rows, check_key))
        return FaultyRound(prepared, self._outage)
