"""Background work of a server: it keeps its claim on the ledger, logs refusals, and deletes old rows.

It also measures how late its event loop wakes up, and logs which certificates expire soon.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from time import perf_counter

from secemb_party.certificates import CertificateLines
from secemb_party.errors import LedgerError
from secemb_party.logs import Outage, get_logger
from secemb_party.metrics import Metrics
from secemb_party.service import Party
from secemb_party.settings import Settings

_EVERY_SECONDS = 10.0
_FORGET_SECONDS = 3600.0


async def keep_up(
    party: Party, *, hosted: Callable[[], Collection[bytes]] = tuple, every: float = _EVERY_SECONDS
) -> None:
    """Do the background work of one task until cancelled; `hosted` are the tasks that this server may still run."""
    refusals, storage = RefusalLines(party), Outage("new sessions are refused", "new sessions are accepted again")
    failing = Outage("upkeep failed", "upkeep has recovered", level="error")
    forget_at = party.steady()
    while True:
        await asyncio.sleep(every)
        refusals.tell()
        try:
            if (shortage := party.space.shortage()) is not None:
                storage.failed(shortage)
            else:
                storage.worked()
            await party.ledger.claim()
            await party.probe_ledger()
            await party.control.drained()
            if party.steady() >= forget_at:
                # One batch at a time until none is left: other writers wait for one batch at most.
                forget_at = party.steady() + (0.0 if await party.forget_old(hosted()) else _FORGET_SECONDS)
        except LedgerError:
            pass  # logged by the ledger itself
        except Exception as error:
            failing.failed(type(error).__name__, error)
        else:
            failing.worked()


async def watch_certificate_lines(settings: Settings, *, every: float = _EVERY_SECONDS) -> None:
    """Log which certificates expire soon, until cancelled."""
    certificates = CertificateLines(settings)
    while True:
        await asyncio.sleep(every)
        certificates.tell(time.time())


class RefusalLines:
    """One line per kind of refusal and interval, however many there were: a flood must not fill the log."""

    def __init__(self, party: Party) -> None:
        self._party, self._told = party, party.metrics.refusals()

    def tell(self) -> None:
        """Log how often each kind of request was refused since the last call."""
        refusals = self._party.metrics.refusals()
        for slug, count in sorted(refusals.items()):
            if more := count - self._told.get(slug, 0):
                by_peer = slug.startswith("peer: ")
                by = "the other server" if by_peer else "this server"
                get_logger().info("refused", problem=slug.removeprefix("peer: "), by=by, count=more)
        self._told = refusals


async def watch_event_loop(metrics: Metrics, *, every: float = 0.1, remembered: int = 600) -> None:
    """Measure how late the event loop wakes up, until cancelled. Delays mean an overloaded machine or blocking work.

    The last measurements are kept, by default for a minute.
    """
    recent: deque[float] = deque(maxlen=remembered)
    largest = 0.0
    while True:
        start = perf_counter()
        await asyncio.sleep(every)
        recent.append(max(0.0, perf_counter() - start - every))
        largest = max(largest, recent[-1])
        metrics.loop_lag(lately=max(recent), largest=largest)
