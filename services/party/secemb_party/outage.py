"""Something that keeps failing: the log tells when it begins, why, now and then how often, and when it is over."""

import time
from collections.abc import Callable

from secemb_party.logs import Level, get_logger

REMIND_SECONDS = 300.0
_MOST_CAUSES = 8  # of one outage, told one by one


class Outage:
    """Failures of one kind, from the first one until something works again."""

    def __init__(
        self, begins: str, ends: str, *, level: Level = "warning", steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._begins, self._ends, self._level, self._steady = begins, ends, level, steady
        self._causes: set[str] = set()
        self._failures, self._since, self._told = 0, 0.0, 0.0

    def failed(self, cause: str, error: BaseException | None = None) -> None:
        """Count a failure; tell it if its cause is new, or if nothing was told for some minutes."""
        now = self._steady()
        if not self._failures:
            self._since = now
        self._failures += 1
        new = cause not in self._causes and len(self._causes) < _MOST_CAUSES
        if new or now - self._told >= REMIND_SECONDS:
            self._causes.add(cause)
            self._told = now
            facts = {"reason": cause, "failures": self._failures, "seconds": round(now - self._since, 1)}
            getattr(get_logger(), self._level)(self._begins, exc_info=error, **facts)

    def worked(self) -> None:
        """Tell that it is over, if it had begun."""
        if not self._failures:
            return
        seconds = round(self._steady() - self._since, 1)
        get_logger().warning(self._ends, failures=self._failures, seconds=seconds)
        self._causes.clear()
        self._failures = 0
