"""What the sums of survey and evaluation rounds say about the fleet."""

import math

from secemb_party.evaluation import Share
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import SURVEY
from secemb_shared.secure_sum import SUM_RING

DEFAULT_ALPHA = 2.0  # of the paper's m' = α · mean


def read_result(spec: RoundSpec, total: Share, sessions: int) -> dict[str, float]:
    """Return the fleet's figures; a figure that nobody contributed to is left out."""
    sums = [float(value) for value in SUM_RING.decode(total.sums)]
    if spec.kind == SURVEY:
        mean = sums[0] / sessions
        return {"mean_items": mean, "suggested_capacity": float(suggest_capacity(mean, spec.task.items))}
    predictions, squared, absolute, rankings, hits, gains = sums
    found: dict[str, float] = {}
    if predictions > 0:
        found |= {"rmse": math.sqrt(max(squared, 0.0) / predictions), "mae": absolute / predictions}
    if rankings > 0:
        found |= {"hit_rate": hits / rankings, "ndcg": gains / rankings}
    return found


def suggest_capacity(mean_items: float, items: int, alpha: float = DEFAULT_ALPHA) -> int:
    """Return m' = α · mean, rounded up, at least 1 and at most the whole catalogue."""
    return max(1, min(items, math.ceil(alpha * mean_items)))
