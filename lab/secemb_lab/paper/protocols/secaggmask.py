"""SecAggMask (Liu et al. 2023): pairwise masks that are zero at most coordinates, so that a user can omit those.

Each pair of users shares a sparse mask: at a coordinate it is zero unless a shared pseudo-random number is below a
threshold. A user sends the coordinates at which its update or one of its masks is not zero. The threshold makes the
probability that at least one of a user's masks covers a coordinate `covered`: 60 % in the paper, so 40 % of the
update's own numbers are sent in clear, and everything that is not masked reveals where the update is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secemb_lab.paper.protocols import sparse_messages
from secemb_lab.paper.protocols.secagg import add_mask, agree
from secemb_lab.paper.protocols.server_view import ServerView
from secemb_shared.dpf import RingArray

COVERED = 0.6


@dataclass(frozen=True, slots=True)
class MaskedRound:
    """The result of a round."""

    messages: Sequence[bytes]  # of each user: all that it uploads
    total: RingArray


def threshold(users: int, covered: float = COVERED) -> int:
    """Return the number of 32 bits below which a pair's mask is not zero."""
    uncovered: float = (1 - covered) ** (1 / (users - 1))
    return round(2**32 * (1 - uncovered))


def encode(
    number: int, keys: Mapping[int, bytes], own: X25519PrivateKey, vector: RingArray, *, covered: float = COVERED
) -> bytes:
    """Return a user's upload: the coordinates with an update or a mask."""
    masked, touched = vector.copy(), vector != 0
    limit = threshold(len(keys), covered)
    for other, public in keys.items():
        if other != number:
            chosen, mask = _sparse_mask(agree(own, public, b"where"), agree(own, public, b"what"), vector.size, limit)
            masked = masked - mask if other > number else masked + mask
            touched |= chosen
    places = np.flatnonzero(touched)
    return sparse_messages.encode(places, masked[places], size=vector.size)


def run(vectors: Sequence[RingArray], *, covered: float = COVERED) -> MaskedRound:
    """Run a round in which everyone stays."""
    secrets = [X25519PrivateKey.generate() for _ in vectors]
    keys = {number: one.public_key().public_bytes_raw() for number, one in enumerate(secrets)}
    messages = [encode(number, keys, own, vectors[number], covered=covered) for number, own in enumerate(secrets)]
    total = np.zeros_like(vectors[0])
    for message in messages:
        places, values = sparse_messages.decode(message, size=total.size)
        total[places] += values[:, 0]
    return MaskedRound(messages, total)


def view(message: bytes, *, items: int, width: int) -> ServerView:
    """Return the server's view of one user, from its upload only."""
    places, values = sparse_messages.decode(message, size=items * width)
    flat: RingArray = np.zeros(items * width, np.uint32)
    flat[places] = values[:, 0]
    return ServerView(np.unique(places // width), flat.reshape(items, width))


def _sparse_mask(where: bytes, what: bytes, size: int, limit: int) -> tuple[npt.NDArray[np.bool_], RingArray]:
    draws: RingArray = np.zeros(size, np.uint32)
    mask: RingArray = np.zeros(size, np.uint32)
    add_mask(where, draws, negative=False)
    add_mask(what, mask, negative=False)
    chosen = draws < limit
    return chosen, np.where(chosen, mask, np.uint32(0))
