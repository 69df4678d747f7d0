"""The window of evaluations that the fleet's figures come from: the newest rounds, each with devices of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from secemb_party.ledger import Ledger
from secemb_server0.figures import read_evaluations
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.measures import SUM_NAMES, WINDOW

_LOOKED_AT = 20  # of the newest events; surveys and repeated steps are among them


async def describe_window(ledger: Ledger, task: TaskSpec, number: int, sums: Sequence[float]) -> dict[str, Any]:
    """Return the sums of the evaluation with this number, and the figures of the window that ends with it."""
    results = await ledger.recent_events("result", limit=_LOOKED_AT)
    rollbacks = await ledger.recent_events("rollback", limit=_LOOKED_AT)
    # What was measured before a rollback is of a model that is gone.
    since = max((event.event_id for event in rollbacks if "version" in event.data), default=0)
    earlier = (event.data for event in results if event.event_id > since)
    return {"sums": list(sums), "window": pool(task, number, sums, earlier)}


def pool(
    task: TaskSpec, number: int, sums: Sequence[float], earlier: Iterable[Mapping[str, Any]]
) -> dict[str, float | list[int]]:
    """Return the figures of this evaluation and the ones before it; `earlier` are results, the newest first."""
    by_round = {number: sums}
    for data in earlier:  # a step that was repeated after a crash counts once
        if len(data.get("sums", ())) == len(SUM_NAMES):
            by_round.setdefault(int(data["round"]), data["sums"])
    rounds = sorted(by_round)[-WINDOW:]
    return {"rounds": rounds, **read_evaluations(task, [by_round[one] for one in rounds])}
