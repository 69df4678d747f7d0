"""The safeguards of the model: the size of sums, discarded rounds, the devices in them, and the trusted panel."""

from typing import Any

from secemb_party.ledger import RoundState
from secemb_party.service import Party
from secemb_party.ui.views.measurements import Figures
from secemb_party.ui.views.rounds import facts_of
from secemb_shared.messages.canonical import decimal

_SHOWN = 20  # discarded rounds, and evaluations of the panel
_LOOKED_AT = 50  # rounds by which devices are compared, discarded and others


async def guard_facts(party: Party) -> dict[str, Any]:
    """Return the content of the page about the guard."""
    task_id, ledger, figures = party.task.task_id, party.ledger, Figures(party.metrics)
    discarded = await ledger.rounds(task_id, limit=_LOOKED_AT, state=RoundState.DISCARDED)
    published = await ledger.rounds(task_id, limit=_LOOKED_AT, state=RoundState.PUBLISHED)
    evaluations = await ledger.recent_events("panel", limit=_SHOWN, task=task_id)
    panel = {int(event.data["round"]): event for event in evaluations}
    return {
        "discarded": await facts_of(party, discarded[:_SHOWN]),
        "counts": await ledger.discarded_by_kind(task_id),
        "suspects": await ledger.suspects(
            discarded=[one.round_id for one in discarded], published=[one.round_id for one in published]
        ),
        "sums": [
            (part, norm, figures.by("secemb_sum_fullness_ratio", "part")[part])
            for part, norm in figures.by("secemb_sum_norm", "part").items()
        ],
        "limited": round((figures.one("secemb_guard_limited_ratio") or 0.0) * party.task.items),
        "items": party.task.items,
        "multiple": decimal(party.task.guard),
        "rejected": figures.total("secemb_sessions_rejected_total"),
        "fates": figures.by("secemb_round_sessions_total", "fate"),
        "panel": [panel[number] for number in sorted(panel, reverse=True)],
        "worse": figures.one("secemb_panel_worse"),
    }
