"""The one thread that writes to SQLite. What waits together is committed together.

A commit waits for the disk, and so costs the same for one upload as for thirty. Whoever comes while one is under way
waits in line and shares the next. If a call of a shared transaction raises, all is undone and each runs again alone, so
that none suffers for another. Calls must therefore be such that they can be run twice.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Engine

from secemb_party.ledger.database import Work, translated
from secemb_party.ledger.errors import LedgerUnavailableError

T = TypeVar("T")

_MOST = 32  # calls that share a transaction: at 250 kB each they still fit in the page cache of a small machine


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    work: Work[T]
    answer: Future[T] = field(default_factory=Future)


class Writer:
    """Runs functions one after the other and answers each when its transaction is on the disk."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._line: deque[_Call[Any]] = deque()
        self._thread = ThreadPoolExecutor(1, "ledger-writer")

    def submit(self, work: Work[T]) -> Future[T]:
        """Get in line."""
        call = _Call(work)
        self._line.append(call)
        try:
            self._thread.submit(self._serve)
        except RuntimeError:  # shut down
            raise LedgerUnavailableError("the ledger is closed") from None
        return call.answer

    def close(self) -> None:
        """Serve who is in line, then end."""
        self._thread.shutdown()

    def _serve(self) -> None:
        # Every call comes with one turn to serve; a turn whose call was served along with others finds nothing to do.
        calls = [self._line.popleft() for _ in range(min(len(self._line), _MOST))]
        calls = [call for call in calls if call.answer.set_running_or_notify_cancel()]
        if len(calls) > 1 and self._commit_together(calls):
            return
        for call in calls:
            self._commit_alone(call)

    def _commit_together(self, calls: list[_Call[Any]]) -> bool:
        """Return whether the calls are answered."""
        try:
            with translated(), self._engine.begin() as tx:
                results = [call.work(tx) for call in calls]
        except LedgerUnavailableError as error:
            # Nobody's fault, and nobody would fare better alone: they would wait for a locked file one by one.
            for call in calls:
                call.answer.set_exception(LedgerUnavailableError(str(error)))
            return True
        except Exception:
            return False
        for call, result in zip(calls, results, strict=True):
            call.answer.set_result(result)
        return True

    def _commit_alone(self, call: _Call[T]) -> None:
        try:
            with translated(), self._engine.begin() as tx:
                result = call.work(tx)
        except BaseException as error:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(result)
