"""The content of the live, rounds, quality and capacity pages, from the ledger and the metrics."""

import asyncio
from collections.abc import Sequence
from typing import Any, get_args

from secemb_party.http.control_routes import view_control
from secemb_party.ledger import Event, RoundRecord, RoundState
from secemb_party.metrics import Transport
from secemb_party.service import Party
from secemb_party.ui.server_facts import Surroundings
from secemb_party.ui.views.measurements import Figures, Throughput
from secemb_party.ui.views.rounds import facts_of, results_by_round, round_facts
from secemb_shared.messages.measures import PATIENCE, WINDOW, Mark, find_stall
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

KINDS = (TRAIN, SURVEY, EVALUATE)
PAGE = 25
ACTIONS = 50


def find_better(evaluations: Sequence[Event], *, settles: bool) -> Event | None:
    """Return the evaluation with the best window, if it is old enough that more rounds may not help, else None.

    A rollback starts a new window, because earlier measurements are of a model that is gone.
    """
    measured: list[tuple[Event, Mark]] = []
    for event in evaluations:
        window = event.data["window"]
        if len(window["rounds"]) == 1:
            measured.clear()
        if (mark := Mark.of(window)) is not None:
            measured.append((event, mark))
    best = find_stall([mark for _, mark in measured], patience=PATIENCE, settles=settles)
    return None if best is None else measured[best][0]


class LiveFacts:
    """The facts of these pages, for one server."""

    def __init__(self, party: Party, surroundings: Surroundings) -> None:
        self._party, self._surroundings = party, surroundings
        self._ledger, self._task_id = party.ledger, party.task.task_id
        self._throughput = Throughput()

    async def live(self) -> dict[str, Any]:
        """Return the round that is running and the ones before it."""
        rounds = await self._ledger.rounds(self._task_id, limit=6)
        current = rounds[0] if rounds and not rounds[0].ended else None
        figures, trained = Figures(self._party.metrics), await self._party.trained()
        return {
            "current": None if current is None else await round_facts(self._party, current),
            "before": await facts_of(self._party, [one for one in rounds if one.ended][:5]),
            "finished": current is None and trained >= self._party.task.rounds,
            "spent": current is None and not await self._party.spending.affords(TRAIN),
            "published": await self._ledger.published_version(self._task_id),
            "waiting": await self._ledger.open_rollback(self._task_id),
            "control": await view_control(self._party),
            "rates": self._throughput.measure(figures),
            "sessions": {
                transport: figures.total("secemb_sessions_total", phase="keys", transport=transport)
                for transport in get_args(Transport)
            },
            "relays": self._party.task.relays,
            "started_at": figures.started_at,
            "cohort": self._party.task.cohort,
            "min_cohort": self._party.task.min_cohort,
            "join_seconds": self._party.task.join_seconds,
            "rounds": self._party.task.rounds,
            "trained": trained,
        }

    async def rounds(self, *, before: int | None, kind: str, state: str) -> dict[str, Any]:
        """Return a page of rounds, newest first."""
        wanted = RoundState(state) if state in set(RoundState) else None
        found = await self._ledger.rounds(
            self._task_id, limit=PAGE + 1, before_number=before, kind=kind if kind in KINDS else None, state=wanted
        )
        return {
            "rounds": await facts_of(self._party, found[:PAGE]),
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

    async def control(self) -> dict[str, Any]:
        """Return the instructions in force, what can be done about the open round, and operators' actions."""
        current, task = await self._ledger.current_round(self._task_id), self._party.task
        return {
            "control": await view_control(self._party),
            "current": current if current is not None and current.state is RoundState.OPEN else None,
            "min_cohort": task.min_cohort,
            "sampled": task.privacy is not None and bool(task.privacy.sampling_rate),
            "actions": await self._ledger.actions(limit=ACTIONS),
            "most_actions": ACTIONS,
        }

    async def quality(self) -> dict[str, Any]:
        """Return the fleet's figures by round, oldest first; a repeated step counts once."""
        by_round = await results_by_round(self._party)
        results = [by_round[number] for number in sorted(by_round)]
        surveys = [event for event in results if "mean_items" in event.data]
        evaluations = [event for event in results if "mean_items" not in event.data]
        return {
            "results": evaluations,
            "better": find_better(evaluations, settles=self._party.task.schedule == "cosine"),
            "survey": surveys[-1] if surveys else None,
            "capacity": self._party.task.capacity,
            "noise": self._party.task.privacy is not None,
            "most": WINDOW,
        }

    async def capacity(self) -> dict[str, Any]:
        """Return the resources that the process uses, and their limits."""
        figures, memory = Figures(self._party.metrics), self._party.memory
        kernel = figures.by("secemb_kernel_seconds_sum", "operation")
        return {
            "rates": self._throughput.measure(figures),
            "kernel": [
                (name, figures.total("secemb_kernel_seconds_count", operation=name), seconds)
                for name, seconds in kernel.items()
            ],
            "messages": (memory.held, memory.most),
            "lag": figures.one("secemb_event_loop_lag_seconds"),
            "memory": figures.one("process_resident_memory_bytes"),
            "processor": figures.one("process_cpu_seconds_total"),
            "files": (figures.one("process_open_fds"), figures.one("process_max_fds")),
            "started_at": figures.started_at,
            "disk": await asyncio.to_thread(self._surroundings.disk),
            "refusals": sorted(self._party.metrics.refusals().items()),
        }
