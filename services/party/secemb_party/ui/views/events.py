"""Events of rounds and models in words, without anything about a single device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secemb_party.ledger import Event
from secemb_party.service import Party

KINDS = ("round", "result", "panel", "rollback", "optimiser", "restored", "control")
SHOWN = 20
_STATES = {
    "sealing": "no longer accepts messages; the two servers are comparing their sessions.",
    "sealed": "is sealed; both servers will add up the same sessions.",
    "shared": "has been summed; this server's share is stored.",
    "reconstructed": "has been reconstructed from the two shares.",
    "aborted": "was aborted; its updates do not count.",
    "discarded": "was discarded; its updates do not count.",
}

_STEERED = {
    "pause": ("The task", "was paused"),
    "resume": ("The task", "was resumed"),
    "drain": ("This server", "was put into drain mode"),
    "drain end": ("This server", "was taken out of drain mode"),
    "close": ("The round", "is being closed"),
    "abort": ("The round", "is being aborted"),
    "task start": ("The task", "was started"),
    "task stop": ("The task", "was stopped"),
    "task archive": ("The task", "was archived"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """One event: its time, subject, link and description."""

    event_id: int
    at: float
    subject: str
    page: str
    words: str


async def latest(party: Party) -> dict[str, Any]:
    """Return the newest events, newest first, and the number from which a stream continues."""
    recent, task_id = party.ledger.recent_events, party.task.task_id
    found = [event for kind in KINDS for event in await recent(kind, limit=SHOWN, task=task_id)]
    found.sort(key=lambda event: event.event_id, reverse=True)
    told = [one for event in found if (one := tell(event, party.role)) is not None]
    after = found[0].event_id if found else 0
    return {"told": told[:SHOWN], "after": after, "event_kinds": KINDS, "most_events": SHOWN}


def tell(event: Event, role: int) -> Told | None:
    """Return an event in words, or None if it means nothing on this server."""
    match event.kind:
        case "round":
            words = _round(event.data, role)
        case "result":
            words = _result(event.data)
        case "panel":
            words = f"was for the trusted panel, and {_result(event.data)}"
        case "rollback":
            return Told(event.event_id, event.at, *_rollback(event.data))
        case "optimiser":
            words = f"starts over at version {event.data['version']}: {event.data['reason']}."
            return Told(event.event_id, event.at, "The optimiser", "/ui/model", words)
        case "restored":
            return Told(event.event_id, event.at, "This server", "/ui/rounds", "was restored from a backup.")
        case "control":
            return Told(event.event_id, event.at, *_control(event.data))
        case _:
            words = ""
    number = event.data.get("round")
    return Told(event.event_id, event.at, f"Round {number}", f"/ui/rounds/{number}", words) if words else None


def _round(data: Mapping[str, Any], role: int) -> str:
    state, words = data["state"], _STATES.get(data["state"], "")
    if state == "reconstructed" and role == 1:
        return ""  # server 0 computes the sum; server 1 learns of it when the round ends
    if state in ("aborted", "discarded") and "reason" in data:
        words = f"{words} Reason: {data['reason']}."
    if state == "published":
        made = data["kind"] == "train"
        words = "has ended; its model is published." if made else "has ended; the model is unchanged."
    refused = sum(data.get("refused", {}).values())
    return f"{words} Requests refused in the meantime: {refused}." if words and refused else words


def _result(data: Mapping[str, Any]) -> str:
    if "mean_items" in data:
        return f"surveyed the devices, which have {data['mean_items']:.1f} items on average."
    figures = []
    if "rmse" in data:
        figures.append(
            f"RMSE {data['rmse']:.3f} over {data['predictions']:,.0f} ratings (biases alone {data['biases_rmse']:.3f})"
        )
    if "ndcg" in data:
        figures.append(
            f"NDCG at {data['k']:.0f} {data['ndcg']:.3f} over {data['rankings']:,.0f} devices "
            f"(popularity {data['popular_ndcg']:.3f})"
        )
    return (
        f"measured the model: {', '.join(figures)}."
        if figures
        else ("measured nothing because no device held out ratings.")
    )


def _rollback(data: Mapping[str, Any]) -> tuple[str, str, str]:
    if "version" in data:
        return f"Version {data['version']}", "/ui/model", f"restores the numbers of version {data['source']}."
    return "The rollback", "/ui/model", f"to version {data['source']} was abandoned: {data['reason']}."


def _control(data: Mapping[str, Any]) -> tuple[str, str, str]:
    subject, words = _STEERED[data["what"]]
    if "round" in data:
        subject = f"Round {data['round']}"
    by = f" by {data['by']}" if "by" in data else ""
    return subject, "/ui/control", f"{words}{by}{': ' + data['reason'] if data['reason'] else ''}."
