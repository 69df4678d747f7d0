"""What became of a device's rounds, for people and for programs."""

import json
import time
from typing import Any

from rich.console import Console

from secemb_sdk import BlockingDevice, Contributed, NotNow, Outcome

INTERRUPTED = 130


def facts_of(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data; of a receipt everything, for it says nothing about its owner's taste."""
    if isinstance(outcome, Contributed):
        return {"outcome": "contributed", **outcome.receipt.as_json(), "trouble": outcome.trouble}
    return {
        "outcome": "not now" if isinstance(outcome, NotNow) else "dropped",
        "reason": outcome.reason,
        "seconds": outcome.seconds,
    }


def is_done(outcome: Outcome) -> bool:
    """Tell whether a device has taken part."""
    return isinstance(outcome, Contributed)


def take_part(device: BlockingDevice, *, rounds: int | None, as_json: bool) -> None:
    """Take part until so many rounds are done, and say what became of each call."""
    console, done = Console(highlight=False, soft_wrap=True), 0
    while rounds is None or done < rounds:
        outcome = device.contribute()
        facts = facts_of(outcome)
        if as_json:
            print(json.dumps(facts), flush=True)
        else:
            console.print(_line(facts))
        if isinstance(outcome, Contributed):
            done += 1
        else:
            time.sleep(outcome.seconds)


def _line(facts: dict[str, Any]) -> str:
    if facts["outcome"] != "contributed":
        return f"{facts['outcome']}: {facts['reason']}; again in {facts['seconds']:.0f} s"
    moved = sum(facts["sent"]) + sum(facts["received"])
    return f"round {facts['round']} {facts['kind']}: {moved / 1e3:,.0f} kB, model {facts['model_version']}"
