"""The one thread that writes to SQLite. What waits together is committed together.

A commit waits for the disk, and so costs the same for one upload as for thirty. Whoever comes while one is under way
waits in line and shares the next. If a call of a shared transaction raises, all is undone and each runs again alone, so
that none suffers for another. Calls must therefore be such that they can be run twice.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from sqlalchemy import Engine

from secemb_party.ledger.database import Work, translated
from secemb_party.ledger.errors import LedgerUnavailableError
from secemb_party.ledger.held import HeldConnection

T = TypeVar("T")

_MOST = 32  # calls that share a transaction: at 250 kB each they still fit in the page cache of a small machine
_GATHER_SECONDS = 0.01  # when several came together the last time, more are on their way: wait for them


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    work: Work[T]
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


Outcome = Callable[[], None]  # gives a call its answer, on the event loop


class Writer:
    """Runs functions one after the other and answers each when its transaction is on the disk."""

    def __init__(self, engine: Engine) -> None:
        self._held = HeldConnection(engine)
        self._line: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Work[T]) -> T:
        """Get in line, and wait."""
        if self._closed:
            raise LedgerUnavailableError("the ledger is closed")
        call = _Call(work)
        self._line.put(call)
        return await call.answer

    def close(self) -> None:
        """Serve who is in line, then end."""
        self._closed = True
        self._line.put(None)
        self._thread.join()

    def _serve(self) -> None:
        crowded = False
        while (first := self._line.get()) is not None:
            if crowded:
                time.sleep(_GATHER_SECONDS)
            calls, last = self._next_with(first)
            crowded = len(calls) > 1
            outcomes = self._commit_together(calls) if len(calls) > 1 else None
            if outcomes is None:
                outcomes = [self._commit_alone(call) for call in calls]
            _deliver(calls[0].answer.get_loop(), outcomes)
            if last:
                break
        self._held.close()

    def _next_with(self, first: _Call[Any]) -> tuple[list[_Call[Any]], bool]:
        """Return those who wait by now, and whether the line is closed behind them."""
        calls = [first]
        while len(calls) < _MOST:
            try:
                call = self._line.get_nowait()
            except Empty:
                break
            if call is None:
                return calls, True
            calls.append(call)
        return calls, False

    def _commit_together(self, calls: list[_Call[Any]]) -> list[Outcome] | None:
        """Return what each call is answered, or None if one of them failed and nothing has happened."""
        try:
            with translated(), self._held.begin() as tx:
                results = [call.work(tx) for call in calls]
        except LedgerUnavailableError as error:
            # Nobody's fault, and nobody would fare better alone: they would wait for a locked file one by one.
            return [_failure(call, LedgerUnavailableError(str(error))) for call in calls]
        except Exception:
            return None
        return [_success(call, result) for call, result in zip(calls, results, strict=True)]

    def _commit_alone(self, call: _Call[Any]) -> Outcome:
        try:
            with translated(), self._held.begin() as tx:
                result = call.work(tx)
        except BaseException as error:
            return _failure(call, error)
        return _success(call, result)


def _success(call: _Call[T], result: T) -> Outcome:
    # Who was cancelled does not wait any more.
    return lambda: None if call.answer.done() else call.answer.set_result(result)


def _failure(call: _Call[Any], error: BaseException) -> Outcome:
    return lambda: None if call.answer.done() else call.answer.set_exception(error)


def _deliver(loop: asyncio.AbstractEventLoop, outcomes: list[Outcome]) -> None:
    """Wake the event loop once for all of them: it costs more than a statement."""

    def answer() -> None:
        for outcome in outcomes:
            outcome()

    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)
