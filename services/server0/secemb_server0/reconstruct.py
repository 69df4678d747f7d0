"""From two shares to the next model: the plain sum, and the optimiser's step on its mean."""

import numpy as np

from secemb_party.errors import PeerRefusedError
from secemb_party.evaluation import Share
from secemb_party.logs import get_logger
from secemb_party.storage import Model, ModelStore
from secemb_server0.optimiser import Adam, Gradient, GradientError, Optimiser, Sgd
from secemb_shared.errors import LengthError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.canonical import decimal


def add_shares(spec: RoundSpec, own: bytes, other: bytes) -> Share:
    """Return the plain sum from this server's share and server 1's."""
    try:
        return Share.decode(spec, own) + Share.decode(spec, other)
    except LengthError:
        raise PeerRefusedError("server 1's share is not one of this round; are both of the same version?") from None


def next_model(store: ModelStore, spec: RoundSpec, total: Share, sessions: int) -> Model:
    """Return the model after a round's step, which is taken once even if a crash cut it short."""
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
    """Return the next version; a sum that is no gradient counts as zero, because a round that is sealed must end."""
    gradient = Gradient.mean(task.ring, rows=total.rows, dense=total.dense, sessions=sessions)
    try:
        return optimiser.step(model, gradient)
    except GradientError:  # one hostile device can do this where the ring is wide
        get_logger().error("the sum is too large to be a gradient; the round counts as zero")
        zeros = Gradient(rows=np.zeros_like(gradient.rows), dense=np.zeros_like(gradient.dense))
        return optimiser.step(model, zeros)
