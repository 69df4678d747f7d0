"""Which kind the next round has: a survey, an evaluation or training."""

from collections.abc import Callable

from secemb_party.ledger import Ledger, RoundRecord, RoundState
from secemb_server0.panel import Panel
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

ChooseKind = Callable[[int], str]

SURVEY_TRIES = 3  # consecutive surveys that may be discarded before training continues without one


def always_train(_: int) -> str:
    """Return training as the kind of any round."""
    return TRAIN


async def next_kind(
    ledger: Ledger, task_id: bytes, last: RoundRecord | None, *, choose: ChooseKind, panel: Panel | None
) -> str:
    """Return the kind of the round after this one: a survey is repeated until one is published."""
    number = 0 if last is None else last.number + 1
    if await _repeats_survey(ledger, task_id, last, number):
        return SURVEY
    return EVALUATE if panel is not None and panel.is_due(number) else choose(number)


async def _repeats_survey(ledger: Ledger, task_id: bytes, last: RoundRecord | None, number: int) -> bool:
    """Return whether to repeat the survey, because none has succeeded yet.

    A single device that lies in every survey gets all of them discarded, and must not prevent the others from training.
    After some discarded surveys, the next ones are far apart: in rounds 8, 16, 32 and so on.
    """
    if last is not None and last.kind == SURVEY and last.state is RoundState.ABORTED:
        return True
    discarded = (await ledger.discarded_by_kind(task_id)).get(SURVEY, 0)
    if not discarded or (await ledger.shares_by_kind(task_id)).get(SURVEY, 0) > discarded:
        return False
    return discarded < SURVEY_TRIES or number == 2**discarded
