"""How the updates of a round come together: through the protocol, or in the clear. Both give the same sum."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from secemb_party.evaluation import Share
from secemb_party.round import PartyRound, agree
from secemb_party.storage import Model
from secemb_sdk.context import Context
from secemb_sdk.models import NotFiniteLossError, PrivateState, fit_bound, learn
from secemb_sdk.round.selection import Selection, select
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.round.upload import current_private, make_upload, measure
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.randomness import secure_bytes
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING
from secemb_tools.simulation.devices import SimulatedDevice


class BothServers:
    """The two sides of one round; what devices send them is what they would send over a wire."""

    def __init__(self, round_: RoundSpec, model: Model) -> None:
        self._sides = PartyRound(round_, 0, model.rows), PartyRound(round_, 1, model.rows)

    def keys(self, session: DeviceSession) -> tuple[bytes, bytes]:
        """Hand over a session's keys and return what each server answers."""
        first, second = self._sides
        return first.keys(session.session_id, session.keys[0]), second.keys(session.session_id, session.keys[1])

    def update(self, session: DeviceSession, messages: tuple[bytes, bytes]) -> None:
        """Hand over a session's update."""
        for side, message in zip(self._sides, messages, strict=True):
            side.update(session.session_id, message)

    def total(self, sessions: int) -> Share:
        """Return the sum over all sessions; there must be so many."""
        first, second = self._sides
        counted = agree(first, second)
        if len(counted) != sessions:
            raise RuntimeError("a session was lost inside one process; this is a fault of the program")
        return first.share(counted) + second.share(counted)


Add = Callable[[RoundSpec, Model, Sequence[SimulatedDevice]], Share]


def add_privately(round_: RoundSpec, model: Model, devices: Sequence[SimulatedDevice]) -> Share:
    """Return the sum as two servers find it; each device does what the SDK does, but for carrying the bytes."""
    servers = BothServers(round_, model)
    for device in devices:
        _take_part(round_, servers, model, device)
    return servers.total(len(devices))


def _take_part(round_: RoundSpec, servers: BothServers, model: Model, device: SimulatedDevice) -> None:
    parts = device.parts
    selection = select(round_, parts.vault.ratings(), parts.held_out(), secure_bytes)
    session = DeviceSession(round_, selection.items)
    answers = servers.keys(session)
    read_rows = partial(session.read, answers)
    messages, moved, _ = make_upload(parts, session, selection, read_rows, model.dense, secure_bytes)
    servers.update(session, messages)
    if moved is not None:
        device.memory.keep_private(moved)


def add_plainly(round_: RoundSpec, model: Model, devices: Sequence[SimulatedDevice]) -> Share:
    """Return the sum by looking at everything: every rating, every row, every update."""
    total = Share.empty(round_)
    for device in devices:
        parts = device.parts
        selection = select(round_, parts.vault.ratings(), parts.held_out(), secure_bytes)
        if selection.items.size == 0:
            continue
        private = current_private(parts, parts.model_for(round_.task), secure_bytes)
        if round_.kind == TRAIN:
            moved = _learn_plainly(round_, model, parts, selection, private, total)
            device.memory.keep_private(moved)
        else:
            _measure_plainly(model, parts, selection, private, total, round_)
    return total


def _learn_plainly(
    round_: RoundSpec, model: Model, parts: Context, selection: Selection, private: PrivateState, total: Share
) -> PrivateState:
    task, items = round_.task, selection.items
    ratings, rate = selection.ratings_of(items), parts.rate_for(task)
    try:
        by_row, by_dense, moved = learn(
            parts.model_for(task), private, model.rows[items], model.dense, ratings, rate=rate, epochs=parts.epochs
        )
    except NotFiniteLossError:
        return private
    total.rows[items] += task.ring.encode(fit_bound(by_row, task)[0], bound=task.bound)
    np.add(total.dense, task.ring.encode(fit_bound(by_dense, task)[0], bound=task.bound), out=total.dense)
    return moved


def _measure_plainly(
    model: Model, parts: Context, selection: Selection, private: PrivateState, total: Share, round_: RoundSpec
) -> None:
    known = parts.model_for(round_.task)
    found = measure(known, private.values, selection, selection.items, model.rows[selection.items], model.dense)
    np.add(total.sums, SUM_RING.encode(found, bound=SUM_BOUND), out=total.sums)
