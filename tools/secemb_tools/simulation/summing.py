"""The sum of a round's updates in the ring, in two ways that must agree to the last bit.

`add_plainly` sees every update and adds them. `add_privately` runs the protocol: sessions of devices, two servers that
answer and add, and the sum of their two shares. Which ratings take part is drawn before, so that both train on the
same; rows are put in the order of the ratings, so that sums of floats on a device are made in the same order too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import Floats, Ratings
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices
from secemb_tools.simulation.rounds import BothServers

Numbers = npt.NDArray[np.floating]
Train = Callable[[Ratings, Floats], tuple[Numbers, Numbers]]  # ratings and their rows → updates of rows and dense part


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Participant:
    """One device in one round: the ratings it brings, and how it learns from them."""

    ratings: Ratings
    train: Train


Sum = Callable[[RoundSpec, Model, Sequence[Participant]], Share]


def add_plainly(round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
    """Return the sum by adding up what each device would send in the clear."""
    total, task = Share.empty(round_), round_.task
    for one in participants:
        updates, dense = one.train(one.ratings, model.rows[one.ratings.items])
        total.rows[one.ratings.items] += task.ring.encode(updates, bound=task.bound)
        np.add(total.dense, task.ring.encode(dense, bound=task.bound), out=total.dense)
    return total


def add_privately(round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
    """Return the sum as two servers find it, neither of which sees a rating, an item or an update."""
    servers = BothServers(round_, model)
    for one in participants:
        _take_part(round_, servers, one)
    return servers.total(len(participants))


def _take_part(round_: RoundSpec, servers: BothServers, one: Participant) -> None:
    session = DeviceSession(round_, one.ratings.items)
    items, rows = session.read(servers.keys(session))
    order = np.argsort(items)
    placed = _those_with_a_place(one.ratings, items[order])
    updates, dense = one.train(placed, rows[order])
    servers.update(session, session.write(placed.items, updates, dense))


def _those_with_a_place(ratings: Ratings, items: Indices) -> Ratings:
    """Return the ratings of these items, both sorted: all of them, but for about one device in a million."""
    kept = np.searchsorted(ratings.items, items)
    return Ratings(ratings.items[kept], ratings.values[kept])
