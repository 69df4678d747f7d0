"""What a server sees of a norm proof has the same distribution for every update that passes."""

import numpy as np
import pytest
from tests.unit.norm_sessions import SMALL, Session, random_vector, vector

from secemb_shared.dpf import RingArray
from secemb_shared.norm import proof as proving
from secemb_shared.norm.field import Field
from secemb_shared.norm.shape import TRANSCRIPT_BYTES

SESSIONS = 200
Elements = list[list[int]]  # (sessions, elements)

UPDATES = {
    "zero": vector(SMALL, np.zeros(1, dtype=np.int64)),
    "at the bound": vector(SMALL, np.array([SMALL.norm_bound])),
    "dense": random_vector(SMALL, 0.7, seed=1),
}


def opened(values: RingArray, check_key: bytes = b"the key") -> tuple[Elements, Elements]:
    """Return what the servers open about many sessions, and server 0's shares of their proofs.

    A server adds its own share to what it receives and knows f_j(r) and g_j(r); the rest of the messages follows from
    these, because the sum of the outputs is zero and h(r) is the sum of the products.
    """
    field, elements, shares = SMALL.field, [], []
    for seed in range(SESSIONS):
        session = Session(SMALL, values, seed)
        assert session.proof is not None
        pairs = zip(session.verifiers(check_key), session.held(session.proof), strict=True)
        messages = [verifier.message(held)[TRANSCRIPT_BYTES:] for verifier, held in pairs]
        both = zip(*(field.decode(message, 2 * SMALL.columns + 2) for message in messages), strict=True)
        elements.append([sum(pair) % field.prime for pair in both][:-2])
        shares.append(field.decode(session.proof.share, SMALL.witness + SMALL.product))
    return elements, shares


def farthest_from_uniform(elements: Elements) -> float:
    """Return, in standard deviations, how far the element that is least uniform is from it (χ² of 16 classes)."""
    lowest = np.array([[value & 15 for value in row] for row in elements])
    expected = len(elements) / 16
    chi2 = [((np.bincount(column, minlength=16) - expected) ** 2 / expected).sum() for column in lowest.T]
    return (max(map(float, chi2)) - 15) / float(np.sqrt(30))


def fewest_values(elements: Elements) -> int:
    """Return how many different values the element that repeats most has; uniform elements of 127 bits never do."""
    return min(len(set(column)) for column in zip(*elements, strict=True))


LIMIT = 8.0  # standard deviations: 1 in 10^7 for an element, and the seeds are fixed


@pytest.mark.parametrize("values", UPDATES.values(), ids=UPDATES)
def test_what_the_servers_see_is_uniform_for_every_update(values: RingArray) -> None:
    for seen in opened(values):
        assert farthest_from_uniform(seen) < LIMIT
        assert fewest_values(seen) == SESSIONS


def test_without_masks_a_server_would_tell_updates_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted leak: f_j(0) = g_j(0) = 0. Then only the carries vary between sessions that add nothing."""
    stream = Field.stream

    def unmasked(self: Field, key: bytes, count: int, *, above: int = -1) -> list[int]:
        found, masks = stream(self, key, count, above=above), 2 * SMALL.columns
        return [0] * masks + found[masks:] if count >= masks else found

    monkeypatch.setattr(Field, "stream", unmasked)
    repeats = {name: fewest_values(opened(values)[0]) for name, values in UPDATES.items()}
    assert repeats["zero"] < SESSIONS * 0.6
    assert repeats["dense"] > SESSIONS * 0.9


def test_without_a_stream_for_server_1_the_share_of_server_0_would_not_be_uniform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted leak: server 0 is sent the carries and the slack themselves."""
    monkeypatch.setattr(proving, "_minus", lambda _field, values, _pads: list(values))
    session_shares = []
    for seed in range(SESSIONS):
        session = Session(SMALL, UPDATES["dense"], seed)
        assert session.proof is not None
        session_shares.append(SMALL.field.decode(session.proof.share, SMALL.witness + SMALL.product))
    assert farthest_from_uniform(session_shares) > LIMIT
    assert fewest_values(session_shares) <= 2


def test_two_points_of_one_session_would_tell_updates_apart() -> None:
    """Why a session has one message: two of them, scaled and subtracted, are free of the masks."""
    prime, scaled = SMALL.field.prime, []
    for key, other in ((b"first", b"second"), (b"second", b"first")):
        weight = Session(SMALL, UPDATES["zero"]).verifiers(other)[0]._factors[0]
        elements, _ = opened(UPDATES["zero"], key)
        assert fewest_values(elements) == SESSIONS
        scaled.append([[value * weight for value in row] for row in elements])
    differences = [[(a - b) % prime for a, b in zip(*rows, strict=True)] for rows in zip(*scaled, strict=True)]
    assert fewest_values(differences) < SESSIONS * 0.6
