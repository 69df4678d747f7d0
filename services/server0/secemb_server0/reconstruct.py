"""From two shares to a round's result: the plain sum, then the optimiser's step, or the figures of the fleet."""

import math

import numpy as np

from secemb_party.errors import GradientError, PeerRefusedError
from secemb_party.evaluation import Share
from secemb_party.logs import get_logger
from secemb_party.storage import Model, ModelStore
from secemb_server0.optimiser import Adam, Gradient, Optimiser, Sgd
from secemb_shared.errors import LengthError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import SURVEY
from secemb_shared.secure_sum import SUM_RING

DEFAULT_ALPHA = 2.0  # of the paper's m' = α · mean


def add_shares(spec: RoundSpec, own: bytes, other: bytes) -> Share:
    """Return the plain sum from this server's share and server 1's."""
    try:
        return Share.decode(spec, own) + Share.decode(spec, other)
    except LengthError:
        raise PeerRefusedError(
            "server 1's share does not fit this round; do both servers run the same version?"
        ) from None


def next_model(store: ModelStore, spec: RoundSpec, total: Share, sessions: int) -> Model:
    """Return the model after a round's step, which is taken once even after a crash."""
    task, target = spec.task, spec.model_version + 1
    state = store.load_state()
    if state is not None and state.version == target:
        return store.load(target)
    optimiser = make_optimiser(task)
    if state is not None:
        optimiser.restore(state)
    model = move_model(optimiser, task, store.load(spec.model_version), total, sessions)
    store.save(model)
    store.save_state(optimiser.state())
    return model


def make_optimiser(task: TaskSpec) -> Optimiser:
    """Return the task's optimiser with its rates."""
    kinds: dict[str, type[Adam] | type[Sgd]] = {"adam": Adam, "sgd": Sgd}
    return kinds[task.optimiser](row_rate=decimal(task.row_rate), dense_rate=decimal(task.dense_rate))


def move_model(optimiser: Optimiser, task: TaskSpec, model: Model, total: Share, sessions: int) -> Model:
    """Return the next version; an unusable sum counts as zero, because a sealed round must end."""
    gradient = Gradient.mean(task.ring, rows=total.rows, dense=total.dense, sessions=sessions)
    try:
        return optimiser.step(model, gradient)
    except GradientError:  # one hostile device can do this where the ring is wide
        get_logger().error("the sum is too large to be a gradient; the round counts as zero")
        zeros = Gradient(rows=np.zeros_like(gradient.rows), dense=np.zeros_like(gradient.dense))
        return optimiser.step(model, zeros)


def read_result(spec: RoundSpec, total: Share, sessions: int) -> dict[str, float]:
    """Return the fleet's figures; a figure without contributions is left out."""
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
