"""The noise that a server adds to its own share, before anybody sees it."""

from secemb_party.evaluation import Share
from secemb_party.privacy.errors import BudgetSpentError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.privacy import add_noise


def blur(round_: RoundSpec, share: Share) -> None:
    """Add fresh noise to every number of a share in place, as much as the task promises against the other server."""
    privacy = round_.task.privacy
    if privacy is None:
        return
    if round_.kind == TRAIN:
        add_noise(share.rows, variance=privacy.rows.variance)
        add_noise(share.dense, variance=privacy.dense.variance)
        return
    noise = privacy.sums(round_.kind)
    if noise is None:
        raise BudgetSpentError("the task has no privacy budget for rounds of this kind")
    add_noise(share.sums, variance=noise.variance)
