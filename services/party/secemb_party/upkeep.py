"""What a server does beside its requests: it keeps its claim on the ledger, tells what it refused, forgets the old."""

import asyncio

from secemb_party.errors import LedgerError
from secemb_party.logs import get_logger
from secemb_party.outage import Outage
from secemb_party.service import Party

_EVERY_SECONDS = 10.0
_FORGET_SECONDS = 3600.0


async def keep_up(party: Party, *, every: float = _EVERY_SECONDS) -> None:
    """Look after a server until cancelled."""
    refusals, storage = RefusalLines(party), Outage("new sessions are refused", "new sessions are accepted again")
    failing = Outage("upkeep failed", "upkeep works again", level="error")
    forget_at = party.steady()
    while True:
        await asyncio.sleep(every)
        refusals.tell()
        try:
            await party.ledger.claim()
            await party.probe_ledger()
            if party.steady() >= forget_at:
                # A batch each time until nothing is left: other writers wait for one batch at most.
                forget_at = party.steady() + (0.0 if await party.forget_old() else _FORGET_SECONDS)
            if (shortage := party.space.shortage()) is not None:
                storage.failed(shortage)
            else:
                storage.worked()
        except LedgerError:
            pass  # told by the ledger itself
        except Exception as error:
            failing.failed(type(error).__name__, error)
        else:
            failing.worked()


class RefusalLines:
    """One line for each kind of refusal in a while, however many there were: a flood must not fill the log."""

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
