"""The window of evaluations that the fleet's figures come from: the newest rounds, each with devices of its own."""

from collections.abc import Mapping, Sequence
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
    by_round = {number: sums}
    for event in results:  # the newest first; a step that was repeated after a crash counts once
        if event.event_id > since and len(event.data.get("sums", ())) == len(SUM_NAMES):
            by_round.setdefault(int(event.data["round"]), event.data["sums"])
    return {"sums": list(sums), "window": pool(task, by_round)}


def pool(task: TaskSpec, by_round: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """Return the figures of the newest evaluations together, and their rounds; evaluations are given by their sums."""
    rounds = sorted(by_round)[-WINDOW:]
    return {"rounds": rounds, **read_evaluations(task, [by_round[one] for one in rounds])}
