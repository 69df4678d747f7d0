"""TopkSecAgg (Lu et al. 2023): users name their items among a few wrong ones, then SecAgg sums the union of all.

Each user uploads the coordinates of its update and, for every ten of them, one that it draws at random (μ = 0.1).
Everybody then masks and sends the rows of the union, so that masks cancel; values are hidden, but items hardly are.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secemb_lab.paper.protocols import secagg
from secemb_lab.paper.protocols.secagg import SecAggRound
from secemb_lab.paper.protocols.server_view import ServerView
from secemb_lab.paper.protocols.sparse_messages import NUMBER
from secemb_shared.dpf import RingArray
from secemb_shared.randomness import Indices

PERTURBED = 0.1  # μ


@dataclass(frozen=True, slots=True)
class TopkRound:
    """The result of a round: the rows of the union, their sum, and each user's messages."""

    names: Sequence[bytes]  # by user: its coordinates
    union: Indices
    total: RingArray  # (union, width)
    summed: SecAggRound


def name(items: Indices, *, catalogue: int, perturbed: float = PERTURBED) -> bytes:
    """Return a user's first upload: its items among random ones, sorted, so that the order reveals nothing."""
    own = set(items.tolist())
    named = set(own)
    while len(named) < min(catalogue, len(own) + round(perturbed * len(own))):
        named.add(secrets.randbelow(catalogue))
    return np.array(sorted(named), "<u4").tobytes()


def named(message: bytes) -> Indices:
    """Return the items of a user's first upload."""
    return np.frombuffer(message, "<u4").astype(np.int64)


def union_of(names: Sequence[bytes]) -> Indices:
    """Return all items that anyone has named."""
    return np.unique(np.concatenate([named(one) for one in names]))


def upload_bytes(own: bytes, *, rows: int, width: int, dense: int = 0) -> int:
    """Return a user's upload for the rows of a union of this size and the dense part: names and masked numbers."""
    return len(own) + NUMBER * (rows * width + dense)


def run(updates: Sequence[RingArray], items: Sequence[Indices], *, threshold: int) -> TopkRound:
    """Run a round over whole updates (items, width), of which only the rows of the union are sent."""
    names = [name(one, catalogue=len(updates[0])) for one in items]
    union = union_of(names)
    vectors = {user: np.ascontiguousarray(one[union]).reshape(-1) for user, one in enumerate(updates, start=1)}
    summed = secagg.run(vectors, threshold=threshold)
    return TopkRound(names, union, summed.total.reshape(union.size, -1), summed)


def view(round_: TopkRound, user: int, *, items: int) -> ServerView:
    """Return the server's view of one user, counted from 0."""
    width = round_.total.shape[1]
    rows: RingArray = np.zeros((items, width), np.uint32)
    rows[round_.union] = round_.summed.masked[user + 1].reshape(-1, width)
    return ServerView(named(round_.names[user]), rows)
