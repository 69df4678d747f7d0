"""What each page shows, gathered from the ledger, the metrics and the other server."""

import asyncio
from typing import Any

from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_party.ledger import RoundRecord, RoundState
from secemb_party.party import Party
from secemb_party.peer_messages import StandingMessage
from secemb_party.ui.figures import Figures, Throughput
from secemb_party.ui.round_view import round_facts
from secemb_party.ui.side import Side
from secemb_party.ui.surroundings import SOON_DAYS, Surroundings
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

KINDS = (TRAIN, SURVEY, EVALUATE)
PAGE = 25
RESULTS = 2000
PATIENCE = 5.0  # seconds that a page waits for the other server


class Views:
    """The pages of one server."""

    def __init__(self, party: Party, side: Side, surroundings: Surroundings) -> None:
        self._party, self._side, self._surroundings = party, side, surroundings
        self._ledger, self._task_id = party.ledger, party.task.task_id
        self._throughput = Throughput()

    async def live(self) -> dict[str, Any]:
        """Return the round that is running and the ones before it."""
        rounds = await self._ledger.rounds(self._task_id, limit=6)
        current = rounds[0] if rounds and not rounds[0].ended else None
        newest = await self._ledger.recent_events("round", limit=1)
        return {
            "current": None if current is None else await round_facts(self._party, current),
            "before": [await round_facts(self._party, one) for one in rounds if one.ended][:5],
            "finished": current is None and bool(rounds) and rounds[0].number + 1 >= self._party.task.rounds,
            "published": await self._ledger.published_version(self._task_id),
            "waiting": await self._ledger.open_rollback(self._task_id),
            "rates": self._throughput.measure(Figures(self._party.metrics)),
            "cohort": self._party.task.cohort,
            "min_cohort": self._party.task.min_cohort,
            "rounds": self._party.task.rounds,
            "after": newest[0].event_id if newest else 0,
        }

    async def rounds(self, *, before: int | None, kind: str, state: str) -> dict[str, Any]:
        """Return a page of rounds, the newest first."""
        wanted = RoundState(state) if state in set(RoundState) else None
        found = await self._ledger.rounds(
            self._task_id, limit=PAGE + 1, before_number=before, kind=kind if kind in KINDS else None, state=wanted
        )
        return {
            "rounds": [await round_facts(self._party, one) for one in found[:PAGE]],
            "older": found[PAGE - 1].number if len(found) > PAGE else None,
            "before": before,
            "kind": kind,
            "state": state,
            "kinds": KINDS,
            "states": list(RoundState),
        }

    async def find_round(self, number: int) -> RoundRecord | None:
        """Return a round by its number, or None."""
        found = await self._ledger.rounds(self._task_id, limit=1, before_number=number + 1)
        return found[0] if found and found[0].number == number else None

    async def quality(self) -> dict[str, Any]:
        """Return the fleet's figures by round, the oldest first; a step that was repeated counts once."""
        events = await self._ledger.recent_events("result", limit=RESULTS)
        by_round = {int(event.data["round"]): event for event in events}
        results = [by_round[number] for number in sorted(by_round)]
        surveys = [event for event in results if "mean_items" in event.data]
        return {
            "results": [event for event in results if "mean_items" not in event.data],
            "survey": surveys[-1] if surveys else None,
            "capacity": self._party.task.capacity,
        }

    async def partner(self) -> dict[str, Any]:
        """Return how the two servers stand to each other."""
        standing, problem = await self._standing()
        figures, now = Figures(self._party.metrics), self._party.clock()
        rounds = await self._ledger.rounds(self._task_id, limit=50)
        sealed = next((one for one in rounds if one.list_digest is not None), None)
        certificates = [(one, one.days_left(now)) for one in self._surroundings.certificates()]
        return {
            "asks": self._side.ask_standing is not None,
            "standing": standing,
            "problem": problem,
            "published": await self._ledger.published_version(self._task_id),
            "same_task": standing is not None and standing.task == self._task_id.hex(),
            "heard_at": figures.one("secemb_peer_heard_seconds") or None,
            "calls": _calls(figures, self._party.role),
            "sealed": sealed,
            "certificates": certificates,
            "soon": SOON_DAYS,
            "started_at": figures.one("process_start_time_seconds"),
        }

    async def _standing(self) -> tuple[StandingMessage | None, str]:
        if self._side.ask_standing is None:
            return None, ""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._side.ask_standing(), ""
        except (PeerUnavailableError, PeerRefusedError) as error:
            return None, str(error)
        except TimeoutError:
            return None, f"server 1 has not answered for {PATIENCE:g} seconds"

    async def capacity(self) -> dict[str, Any]:
        """Return what the process uses, and how much of it there is."""
        figures, workers = Figures(self._party.metrics), self._party.workers
        kernel = figures.by("secemb_kernel_seconds_sum", "operation")
        return {
            "rates": self._throughput.measure(figures),
            "kernel": [
                (name, figures.total("secemb_kernel_seconds_count", operation=name), seconds)
                for name, seconds in kernel.items()
            ],
            "queue": (workers.taken, workers.limit),
            "lag": figures.one("secemb_event_loop_lag_seconds"),
            "memory": figures.one("process_resident_memory_bytes"),
            "processor": figures.one("process_cpu_seconds_total"),
            "files": (figures.one("process_open_fds"), figures.one("process_max_fds")),
            "started_at": figures.one("process_start_time_seconds"),
            "disk": await asyncio.to_thread(self._surroundings.disk),
            "refusals": sorted(self._party.metrics.refusals().items()),
        }


def _calls(figures: Figures, role: int) -> list[tuple[str, float]]:
    """Return how often the line was used, by outcome; on server 1 by what was asked."""
    if role == 0:
        return list(figures.by("secemb_peer_calls_total", "outcome").items())
    routes = figures.by("secemb_request_seconds_count", "route")
    return [(route.rsplit("/", 1)[1], count) for route, count in routes.items() if route.startswith("/peer/")]
