"""Each server's information about its peer: server 0 asks it, server 1 remembers its calls."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_party.ledger import ModelVersion, RoundRecord
from secemb_party.peer_messages import StandingMessage
from secemb_party.service import Party
from secemb_party.ui.server_facts import SOON_DAYS, Side, Surroundings
from secemb_party.ui.views.measurements import Figures

PATIENCE = 5.0  # seconds that a page waits for the peer
GRACE = 120.0  # seconds that server 0 may be late: it calls every ten seconds, whatever rounds do
_ANSWERED = "200"
# Server 0's calls, by the end of the route, in the order of a round.
_ASKED = {
    "standing": "which model is published here",
    "steering": "whether this server takes part",
    "relay-key": "for the key that relayed devices encrypt to",
    "announce": "to open a round",
    "relay": "to take relayed messages",
    "progress": "how many updates are here",
    "prepare": "to prepare a list of sessions",
    "verify": "to check the proofs of updates",
    "commit": "to seal a list of sessions",
    "share": "for the share of a sum",
    "share/{sealed}/{first}": "for a piece of a share",
    "models/{digest}/{first}": "to bring a piece of a model",
    "publish": "to end a round",
    "discard": "to discard a sum",
    "abort": "to abort a round",
    "rollback": "to roll back the model",
    "succession": "to continue the task as its successor",
    "successor": "for the successor of the task",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Server 1's answer, or why there is none."""

    standing: StandingMessage | None
    seconds: float | None
    problem: str


class PeerView:
    """One server's information about its peer."""

    def __init__(self, party: Party, side: Side, surroundings: Surroundings) -> None:
        self._party, self._side, self._surroundings = party, side, surroundings

    async def facts(self) -> dict[str, Any]:
        """Return the content of the page about the peer."""
        party, task_id = self._party, self._party.task.task_id
        asked, figures, now = await self._ask(), Figures(party.metrics), party.clock()
        rounds = await party.ledger.rounds(task_id, limit=50)
        newest = rounds[0] if rounds else None
        published = await party.ledger.published_version(task_id)
        heard_at, started_at = figures.one("secemb_peer_heard_timestamp_seconds") or None, figures.started_at
        return {
            "asks": self._side.ask_standing is not None,
            "asked": asked,
            "there": party.control.there,
            "same_task": asked.standing is not None and asked.standing.task == task_id.hex(),
            "published": published,
            "agreed_at": agreed_at(published, newest),
            "heard_at": heard_at,
            "due_at": (heard_at or started_at or now) + GRACE,
            "calls": _calls(figures, party.role),
            "sealed": next((one for one in rounds if one.list_digest is not None), None),
            "certificates": [(one, one.days_left(now)) for one in self._surroundings.certificates()],
            "soon": SOON_DAYS,
            "started_at": started_at,
        }

    async def _ask(self) -> Asked:
        if self._side.ask_standing is None:
            return Asked(None, None, "")
        start = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                return Asked(await self._side.ask_standing(), time.monotonic() - start, "")
        except (PeerUnavailableError, PeerRefusedError) as error:
            return Asked(None, None, str(error))
        except TimeoutError:
            return Asked(None, None, f"server 1 did not answer within {PATIENCE:g} seconds")


def agreed_at(published: ModelVersion | None, newest: RoundRecord | None) -> float | None:
    """Return when server 0 last named the digest of the model that server 1 has published, or None.

    Server 0 names it when it opens a round on that model, and when it sends the model. Each server creates the first
    model itself.
    """
    if published is None:
        return None
    if newest is not None and newest.model_version == published.version:
        return newest.opened_at
    return published.published_at if published.version else None


def _calls(figures: Figures, role: int) -> list[tuple[str, float]]:
    """Return how often the peer channel was used: on server 0 by outcome, on server 1 by route."""
    if role == 0:
        words = {"ok": "answered", "refused": "refused", "unreachable": "not answered"}
        return [(words[name], count) for name, count in figures.by("secemb_peer_call_seconds_count", "outcome").items()]
    answered, everything = _peer_requests(figures, status=_ANSWERED), _peer_requests(figures)
    found = [(words, answered[route]) for route, words in _ASKED.items() if route in answered]
    refused = sum(everything.values()) - sum(answered.values())
    return [*found, ("refused", refused)] if refused else found


def _peer_requests(figures: Figures, **labels: str) -> dict[str, float]:
    """Return how often each route of the peer channel was called, by the end of the route."""
    found = figures.by("secemb_request_seconds_count", "route", **labels)
    return {route_end(route): count for route, count in found.items() if route.startswith("/peer/")}


def route_end(route: str) -> str:
    """Return what distinguishes a route of the peer channel from the others."""
    return route.removeprefix("/peer/v1/").removeprefix("rounds/{round}/")
