"""What a hostile device can get past the norm proof: as much as the theory says, and no more.

Rates are measured with fewer projections, where they are large enough to be counted; the proof itself has 128.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.norm_sessions import SMALL, TINY, WIDE, Session, random_vector, vector
from tests.unit.sessions import random_ring, rng_of

from secemb_lab import norm
from secemb_shared import prg
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.dpf._portable import Portable
from secemb_shared.norm import NormShape, Proof, transcript, verification
from secemb_shared.norm import proof as proving
from secemb_shared.norm.circuit import lifted, witness_of

BOUND = 2**20
CHALLENGES = 3000
Cheat = Callable[[NormShape, list[int], list[int]], list[int]]

FEW = pytest.mark.parametrize("projections", [8, 16, 32])


def accepted_share(values: RingArray, projections: int, challenges: int = CHALLENGES) -> tuple[float, float]:
    """Return how often the squares of this many projections stay below their threshold, and its standard error.

    A device knows the carries, and with any other carry than the right one a projection is beyond the threshold.
    """
    signed = np.int32 if values.dtype == np.uint32 else np.int64
    keys = rng_of(projections, values.size)
    found = np.stack([default_backend().project(keys.bytes(16), values) for _ in range(challenges)])
    squares = (found.view(signed).astype(np.float64) ** 2).reshape(-1, projections).sum(axis=1)
    share = float(np.mean(squares <= projections * float(BOUND) ** 2))
    return share, math.sqrt(max(share, 1 / squares.size) / squares.size)


@FEW
@pytest.mark.parametrize("length", [1.0, 1.5, 2.0, 2.5, 3.0, 10.0])
def test_long_dense_updates_pass_as_often_as_the_theory_says(projections: int, length: float) -> None:
    values = np.full(1000, round(length * BOUND / math.sqrt(1000)), dtype=np.uint32)
    share, error = accepted_share(values, projections)
    assert abs(share - 2 ** norm.dense(length, projections)) < 5 * error + 0.005  # not quite Gaussian


@FEW
@pytest.mark.parametrize("entries", [1, 2, 4])
@pytest.mark.parametrize("length", [1.5, 2.0, 2.5, 3.0, 10.0])
def test_long_sparse_updates_pass_as_often_as_the_theory_says(projections: int, entries: int, length: float) -> None:
    values = np.zeros(50, dtype=np.uint32)
    values[:entries] = math.ceil(length * BOUND / math.sqrt(entries))
    exact = float(values[0]) * math.sqrt(entries) / BOUND
    share, error = accepted_share(values, projections)
    assert abs(share - 2 ** norm.flat(exact, entries, projections)) < 5 * error


@FEW
@pytest.mark.parametrize("length", [1.5, 2.0, 2.5, 3.0, 4.0, 10.0])
def test_no_vector_that_was_tried_passes_more_often_than_the_bound(projections: int, length: float) -> None:
    rng = rng_of(projections)
    kinds = [np.ones(1), np.ones(2), np.ones(1000), np.r_[3.0, np.ones(9)], np.r_[1.0, np.full(500, 0.05)]]
    kinds += [rng.normal(size=20), rng.standard_cauchy(size=200), 2.0 ** -np.arange(12)]
    for kind in kinds:
        scaled = np.ceil(np.abs(kind) / np.linalg.norm(kind) * length * BOUND) * np.sign(kind)
        share, error = accepted_share(scaled.astype(np.int64).astype(np.uint32), projections, challenges=800)
        assert share <= 2 ** norm.bound(length, projections) + 5 * error


def test_the_exact_rates_are_below_the_bound() -> None:
    for length in (1.5, 2.0, 3.0, 5.0):
        rates = [norm.dense(length), *(norm.flat(length, entries) for entries in (1, 2, 3, 5, 9, 30))]
        assert max(rates) <= norm.bound(length)


def test_the_documented_rates_hold() -> None:
    assert [round(norm.dense(length)) for length in (2.0, 2.5, 3.0)] == [-21, -46, -71]
    assert round(norm.flat(3.0, 1)) == -67
    assert norm.bound(16.0) < -120
    assert norm.honest_failure()[0] < norm.honest_failure()[1] < -28


WRAPPING = {
    "one half of the ring": [2**31],
    "two halves": [2**31] * 2,
    "six halves": [2**31] * 6,
    "thirds": [2**32 // 3] * 3,
    "one third": [2**32 // 3],
    "quarters": [2**30] * 16,
    "a half and its negative neighbour": [2**31, 2**31 + 1],
    "thousands of halves": [2**31] * 2000,
    "random": random_ring(rng_of(8), 200, 32).tolist(),
}


@pytest.mark.parametrize("values", WRAPPING.values(), ids=WRAPPING)
@pytest.mark.parametrize("projections", [4, 8])
def test_updates_that_wrap_around_the_ring_pass_with_at_most_one_half_a_projection(
    values: list[int], projections: int
) -> None:
    share, error = accepted_share(np.array(values, dtype=np.uint64).astype(np.uint32), projections)
    assert share <= 2.0**-projections + 5 * error


class PlusOrMinus(Portable):
    """Planted fault: entries +1 and −1 only."""

    def project(self, key: bytes, values: RingArray) -> RingArray:
        blocks = prg.stream(key, values.size)
        bits = np.unpackbits(blocks, axis=-1, bitorder="little").astype(values.dtype)
        sums: RingArray = values @ (bits + bits - np.asarray(1, dtype=values.dtype))
        return sums


def test_entries_without_zeros_would_let_an_update_of_half_the_ring_pass() -> None:
    values = vector(SMALL, np.array([2**31, 2**31]))
    assert Session(SMALL, values).proof is None
    assert Session(SMALL, values, backend=PlusOrMinus()).accepted()


def cheat(session: Session, witness_for: Cheat) -> Proof:
    """Return the best proof of a false witness: commitments, shares and h are all made for it."""
    shape, statement, seeds = session.shape, session.statement, session.seeds
    probe = Proof(bytes(96), bytes(shape.share_bytes))
    held0, held1 = session.held(probe)
    committed = (statement.commit_share(0, seeds[0], held0.dense_share), statement.commit_share(1, seeds[1], None))
    seed = transcript.challenge(statement, *committed)
    dense1 = session.dense - held0.dense_share
    shares = [
        np.concatenate([held0.slot_sums.reshape(-1), held0.dense_share]),
        np.concatenate([held1.slot_sums.reshape(-1), dense1]),
    ]
    both = [lifted(shape, party, default_backend().project(seed[:16], share)) for party, share in enumerate(shares)]
    return proving.prove_witness(
        shape,
        statement,
        seeds=seeds,
        committed=committed,
        seed=seed,
        lifted=[first + second for first, second in zip(*both, strict=True)],
        witness=witness_for(shape, both[0], both[1]),
    )


def honest_witness(shape: NormShape, lifted0: list[int], lifted1: list[int]) -> list[int]:
    witness = witness_of(shape, lifted0, lifted1)
    assert witness is not None
    return witness


def slack_of(shape: NormShape, sums: list[int], carries: list[int]) -> int:
    return shape.threshold - sum(
        (value - (carry << shape.bits)) ** 2 for value, carry in zip(sums, carries, strict=True)
    )


def vanishing_carries(shape: NormShape, lifted0: list[int], lifted1: list[int]) -> list[int]:
    """Carries that are no bits: the field elements that make every projection zero."""
    inverse = pow(1 << shape.bits, -1, shape.field.prime)
    carries = [(a + b) * inverse % shape.field.prime for a, b in zip(lifted0, lifted1, strict=True)]
    return carries + [shape.threshold >> at & 1 for at in range(shape.slack_bits)]


def negative_slack(shape: NormShape, lifted0: list[int], lifted1: list[int]) -> list[int]:
    """Right carries, and the whole slack of a long update, below zero, in one element that is no bit."""
    sums = [a + b for a, b in zip(lifted0, lifted1, strict=True)]
    carries = [(total + (1 << (shape.bits - 1))) >> shape.bits for total in sums]
    return carries + [slack_of(shape, sums, carries) % shape.field.prime] + [0] * (shape.slack_bits - 1)


def missing_slack(shape: NormShape, lifted0: list[int], lifted1: list[int]) -> list[int]:
    """Right carries and no slack at all."""
    return negative_slack(shape, lifted0, lifted1)[: -shape.slack_bits] + [0] * shape.slack_bits


LONG = pytest.mark.parametrize("strategy", [vanishing_carries, negative_slack, missing_slack])
EACH_SHAPE = pytest.mark.parametrize("shape", [TINY, SMALL, WIDE], ids=["24", "32", "64"])


@EACH_SHAPE
def test_the_way_of_cheating_is_accepted_if_nothing_is_false(shape: NormShape) -> None:
    session = Session(shape, random_vector(shape, 0.9, seed=1))
    assert cheat(session, honest_witness) == session.proof
    assert session.accepted(cheat(session, honest_witness))


@LONG
@EACH_SHAPE
def test_a_long_update_with_a_false_witness_is_rejected(strategy: Cheat, shape: NormShape) -> None:
    for seed in range(5):
        session = Session(shape, random_vector(shape, 4.0, seed=seed))
        assert session.proof is None
        assert not session.accepted(cheat(session, strategy))


@EACH_SHAPE
def test_every_false_carry_and_slack_bit_is_rejected(shape: NormShape) -> None:
    session = Session(shape, random_vector(shape, 0.9, seed=2))
    for at in range(0, shape.witness, 7):

        def flipped(shape: NormShape, lifted0: list[int], lifted1: list[int], at: int = at) -> list[int]:
            witness = honest_witness(shape, lifted0, lifted1)
            return [*witness[:at], 1 - witness[at], *witness[at + 1 :]]

        assert not session.accepted(cheat(session, flipped)), at


def test_without_the_challenge_to_the_bits_a_long_update_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: with ρ = 0 nothing says that carries and slack are bits."""
    for module in (proving, verification):
        monkeypatch.setattr(module, "join", lambda *args: replace(transcript.join(*args), rho=0))
    session = Session(SMALL, random_vector(SMALL, 10.0, seed=3))
    assert session.accepted(cheat(session, vanishing_carries))
    assert session.accepted(cheat(session, negative_slack))
    assert not session.accepted(cheat(session, missing_slack))


def test_a_device_that_knew_the_point_could_prove_anything() -> None:
    """The check key must be secret: h only has to be right at the point, and to have the sum that is asked for."""
    session = Session(SMALL, random_vector(SMALL, 10.0, seed=4))
    proof, field = cheat(session, missing_slack), SMALL.field
    verifier = session.verifiers()[0]
    messages = [field.decode(message[16:], 2 * SMALL.columns + 2) for message in session.messages(proof)]
    out = (messages[0][-1] + messages[1][-1]) % field.prime
    weights = verifier._products
    elements = field.decode(proof.share, SMALL.witness + SMALL.product)
    at_one, at_last = SMALL.witness + 1, SMALL.witness + SMALL.product - 1
    elements[at_one] = (elements[at_one] - out) % field.prime  # the sum is right now, h(r) is not
    assert not session.accepted(Proof(proof.public, field.encode(elements)))
    moved = out * weights[1] * pow(weights[-1], -1, field.prime)
    elements[at_last] = (elements[at_last] + moved) % field.prime  # outside the sum
    assert session.accepted(Proof(proof.public, field.encode(elements)))


def test_challenges_are_bound_to_all_that_fixes_the_update() -> None:
    session = Session(SMALL, random_vector(SMALL, 0.5, seed=6))
    statement, dense = session.statement, session.dense
    words = statement.words.copy()
    words[-1, -1] ^= np.uint32(1)
    moved = dense.copy()
    moved[-1] ^= np.uint32(1)
    commit0, commit1 = statement.commit_share(0, session.seeds[0], dense), statement.commit_share(1, bytes(16), None)
    seeds = {
        transcript.challenge(statement, commit0, commit1),
        transcript.challenge(replace(statement, words=words), commit0, commit1),
        transcript.challenge(replace(statement, keys_digest=bytes(32)), commit0, commit1),
        transcript.challenge(statement, statement.commit_share(0, session.seeds[0], moved), commit1),
        transcript.challenge(statement, statement.commit_share(0, bytes(16), dense), commit1),
        transcript.challenge(statement, commit0, statement.commit_share(1, session.seeds[1], None)),
    }
    assert len(seeds) == 6
