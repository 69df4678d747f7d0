"""How rounds ended, as reported to devices: the same for every device, whichever rounds it was in."""

from collections.abc import Mapping
from dataclasses import dataclass

from secemb_party.ledger import Ledger, RoundState

_TOLD = 50  # number of rounds without a result that are reported to devices
_LOST = (RoundState.ABORTED, RoundState.DISCARDED)
# Reasons that may be shown to devices. Operators' reasons are meant for other operators.
_PUBLIC_REASONS = (
    "too few",
    "a rollback was requested",
    "the privacy budget",
    "it has ended on server 1",
    "its sum is impossible",
)
_OTHER_REASON = "the operators ended it"


@dataclass(frozen=True, slots=True)
class EndedRounds:
    """How rounds ended: all from `since` to `until` were published, except the aborted ones.

    A discarded round is reported as aborted: for a device, both mean that its update does not count.
    """

    since: int
    until: int  # -1: none has ended
    aborted: Mapping[int, str]  # by number of the round: the reason


async def read_ended(ledger: Ledger, task_id: bytes) -> EndedRounds:
    """Return how the rounds of a task have ended."""
    last = await ledger.last_round(task_id)
    lost = [one for state in _LOST for one in await ledger.rounds(task_id, limit=_TOLD, state=state)]
    told = sorted(lost, key=lambda one: one.number, reverse=True)[:_TOLD]
    return EndedRounds(
        since=told[-1].number if len(told) == _TOLD else 0,
        until=-1 if last is None else last.number if last.ended else last.number - 1,
        aborted={one.number: _public(one.reason or "") for one in told},
    )


def _public(reason: str) -> str:
    return reason if reason.startswith(_PUBLIC_REASONS) else _OTHER_REASON
