"""The norm proof is complete, and every single altered part of it is noticed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.norm_sessions import SMALL, TINY, WIDE, Session, changed, random_vector, vector
from tests.unit.sessions import BACKENDS, both_keys, random_ring, rng_of

from secemb_shared.dpf import Backend
from secemb_shared.errors import EncodingError, LengthError, SpecError
from secemb_shared.norm import PUBLIC_BYTES, Held, NormShape, Proof, Verifier, agree
from secemb_shared.norm.shape import TRANSCRIPT_BYTES

ML1M = NormShape(bits=32, slots=332, width=64, dense=72, norm_bound=2**21)
EACH_SHAPE = pytest.mark.parametrize("shape", [TINY, SMALL, WIDE], ids=["24", "32", "64"])


@EACH_SHAPE
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: type(backend).__name__.lower())
def test_an_honest_update_passes(shape: NormShape, backend: Backend) -> None:
    for seed in range(10):
        values = random_vector(shape, length=1.0, seed=seed)
        assert Session(shape, values, seed, backend).accepted()


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([24, 32, 64]),
    slots=st.integers(1, 40),
    width=st.integers(1, 9),
    dense=st.integers(0, 20),
    exponent=st.floats(0, 1),
    length=st.floats(0, 1),
    data=st.data(),
)
def test_honest_updates_of_every_shape_pass(
    bits: int, slots: int, width: int, dense: int, exponent: float, length: float, data: st.DataObject
) -> None:
    bound = max(1, int(2.0 ** (exponent * (bits - 5))))
    shape = NormShape(bits=bits, slots=slots, width=width, dense=dense, norm_bound=bound)
    seed, entries = data.draw(st.integers(0, 2**30)), data.draw(st.integers(1, shape.size))
    assert Session(shape, random_vector(shape, length, seed, entries), seed).accepted()


@pytest.mark.parametrize("bits", [24, 32, 64])
@pytest.mark.parametrize("exponent", [0, 1, 7, 19, -5])
def test_an_update_exactly_at_the_bound_passes(bits: int, exponent: int) -> None:
    bound = 2 ** (exponent if exponent >= 0 else bits + exponent)
    shape = NormShape(bits=bits, slots=4, width=4, dense=2, norm_bound=bound)
    lone, spread = np.array([-bound]), np.full(16, bound // 4)
    for seed in range(5):
        assert Session(shape, vector(shape, lone), seed).accepted()
        assert Session(shape, vector(shape, spread), seed).accepted()
        assert Session(shape, vector(shape, np.zeros(1, dtype=np.int64)), seed).accepted()


def test_an_update_of_the_size_of_movielens_passes_and_fits_its_bytes() -> None:
    session = Session(ML1M, random_vector(ML1M, length=1.0, seed=1))
    proof = session.proof
    assert proof is not None
    assert session.accepted()
    assert len(proof.share) == ML1M.share_bytes
    assert len(proof.public) == PUBLIC_BYTES
    assert len(proof.public) + len(proof.share) <= 5_000
    assert [len(message) for message in session.messages(proof)] == [ML1M.message_bytes] * 2
    assert ML1M.message_bytes <= 800


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: type(backend).__name__.lower())
def test_the_slot_sums_of_real_keys_pass(backend: Backend) -> None:
    shape, leaves = NormShape(bits=32, slots=9, width=5, dense=3, norm_bound=2**20), 47
    session = Session(shape, random_vector(shape, 1.0, seed=2), backend=backend)
    held0, held1, leaf0, leaf1 = both_keys(backend, rng_of(1).integers(0, leaves, shape.slots), depth=6)
    words = backend.convert_gen(held0.keys[0, 2].tobytes(), leaf0, leaf1, session.payload)
    session.slot_sums1 = backend.slot_sums(held1, leaves, words[None])[0]
    proof = session.proof
    assert proof is not None
    share0 = backend.slot_sums(held0, leaves, words[None])[0]
    assert session.accepted(proof, alter0=lambda held: changed(held, slot_sums=share0))


@EACH_SHAPE
def test_a_long_update_has_no_proof(shape: NormShape) -> None:
    for length in (4.0, 10.0, 15.0):
        assert Session(shape, random_vector(shape, length, seed=3)).proof is None
    assert Session(shape, random_ring(rng_of(4), shape.size, shape.bits)).proof is None


def honest(shape: NormShape) -> tuple[Session, Proof]:
    session = Session(shape, random_vector(shape, 0.9, seed=5))
    assert session.accepted()
    assert session.proof is not None
    return session, session.proof


@EACH_SHAPE
def test_an_altered_share_of_the_update_is_noticed(shape: NormShape) -> None:
    session, proof = honest(shape)
    for at in range(shape.slots * shape.width):

        def alter(held: Held, at: int = at) -> Held:
            sums = held.slot_sums.copy()
            sums.reshape(-1)[at] += np.asarray(1, dtype=sums.dtype)
            return changed(held, slot_sums=sums)

        # One step more may leave all projections as they are, if the entries of this element are all zero: 2^-128.
        assert not session.accepted(proof, alter0=alter)
        assert not session.accepted(proof, alter1=alter)


def test_an_altered_dense_share_is_noticed() -> None:
    session, proof = honest(SMALL)
    for at in range(SMALL.dense):

        def alter(held: Held, at: int = at) -> Held:
            assert held.dense_share is not None
            dense = held.dense_share.copy()
            dense[at] += np.uint32(1)
            return changed(held, dense_share=dense)

        assert not session.accepted(proof, alter0=alter)


@EACH_SHAPE
def test_every_altered_element_of_the_proof_is_noticed(shape: NormShape) -> None:
    """Carries, slack bits and each value of h; the commitment to the witness is not even needed for that."""
    session, proof = honest(shape)
    field = shape.field
    elements = field.decode(proof.share, shape.witness + shape.product)
    for at, element in enumerate(elements):
        other = field.encode([*elements[:at], (element + 1) % field.prime, *elements[at + 1 :]])
        assert not session.accepted(Proof(proof.public, other)), at


@EACH_SHAPE
def test_every_altered_element_of_a_message_is_noticed(shape: NormShape) -> None:
    """Masked values of the polynomials, of their product, and the sum: a server cannot move any of them alone."""
    session, proof = honest(shape)
    messages = session.messages(proof)
    assert agree(shape, *messages)
    for at in range(TRANSCRIPT_BYTES, shape.message_bytes, shape.field.size):
        for party in (0, 1):
            altered = [bytearray(message) for message in messages]
            altered[party][at] ^= 1
            assert not agree(shape, *map(bytes, altered)), (at, party)
    for at in range(TRANSCRIPT_BYTES):
        assert not agree(shape, messages[0], bytes([*messages[1][:at], messages[1][at] ^ 1, *messages[1][at + 1 :]]))


def test_every_false_commitment_is_noticed() -> None:
    """Also if both servers hold the same false bytes: each computes the commitments to what it holds itself."""
    session, proof = honest(SMALL)
    for at in range(0, PUBLIC_BYTES, 8):
        public = bytes([*proof.public[:at], proof.public[at] ^ 1, *proof.public[at + 1 :]])
        assert not session.accepted(Proof(public, proof.share)), at

        def alter(held: Held, public: bytes = public) -> Held:
            return changed(held, public=public)

        own0 = at < 32 or at >= 64  # server 0 does not read its own commitments
        assert session.accepted(proof, alter0=alter) == own0
        assert session.accepted(proof, alter1=alter) == (not own0)


def test_a_proof_is_of_no_use_to_another_session() -> None:
    session, proof = honest(SMALL)
    other = Session(SMALL, session.values, seed=77).statement
    places = [
        changed_statement(session, label=other.label),
        changed_statement(session, keys_digest=other.keys_digest),
        changed_statement(session, words=other.words),
    ]
    for place in places:

        def alter(held: Held, place: object = place) -> Held:
            return changed(held, statement=place)

        assert not session.accepted(proof, alter, alter)


def changed_statement(session: Session, **changes: object) -> object:
    return replace(session.statement, **changes)  # type: ignore[arg-type]


def test_another_seed_is_noticed() -> None:
    session, proof = honest(SMALL)

    def alter(held: Held) -> Held:
        return changed(held, seed=bytes(16))

    assert not session.accepted(proof, alter0=alter)
    assert not session.accepted(proof, alter1=alter)


def test_servers_with_different_points_do_not_agree() -> None:
    session, proof = honest(SMALL)
    held0, held1 = session.held(proof)
    first, second = session.verifiers()[0], session.verifiers(b"another key")[1]
    assert not agree(SMALL, first.message(held0), second.message(held1))


def test_the_check_point_is_another_in_each_round_and_never_among_the_values() -> None:
    session, proof = honest(SMALL)
    held0, _ = session.held(proof)
    label = session.label
    places = [type(label)(label.task_id, number) for number in range(20)]
    made = {
        Verifier(SMALL, place, party=0, check_key=key).message(held0) for place in places for key in (b"one", b"two")
    }
    assert len(made) == 40


@EACH_SHAPE
def test_bytes_of_another_length_are_refused(shape: NormShape) -> None:
    session, proof = honest(shape)
    message = session.messages(proof)[0]
    for other in (message[:-1], message + b"x", b"", message[: -shape.field.size]):
        with pytest.raises(LengthError):
            agree(shape, message, other)
        with pytest.raises(LengthError):
            agree(shape, other, message)
    for share in (proof.share[:-1], proof.share + bytes(shape.field.size), b""):
        with pytest.raises(LengthError):
            session.accepted(Proof(proof.public, share))
    for public in (proof.public[:-1], proof.public + b"x"):
        with pytest.raises(LengthError):
            session.accepted(Proof(public, proof.share))


@EACH_SHAPE
def test_elements_that_are_not_canonical_are_refused(shape: NormShape) -> None:
    session, proof = honest(shape)
    field = shape.field
    for number in (field.prime, field.prime + 1, 2 ** (8 * field.size) - 1):
        spoiled = number.to_bytes(field.size, "little") + proof.share[field.size :]
        with pytest.raises(EncodingError):
            session.accepted(Proof(proof.public, spoiled))


def test_what_does_not_fit_the_shape_is_refused() -> None:
    session, proof = honest(SMALL)
    held0, held1 = session.held(proof)
    first, second = session.verifiers()
    cases = [
        (first, changed(held0, slot_sums=held0.slot_sums[:-1])),
        (first, changed(held0, dense_share=None)),
        (first, changed(held0, norm_share=None)),
        (first, held1),
        (second, held0),
        (first, changed(held0, dense_share=np.zeros(SMALL.dense + 1, dtype=np.uint32))),
    ]
    for verifier, held in cases:
        with pytest.raises(SpecError):
            verifier.message(held)


@pytest.mark.parametrize(
    "changes",
    [{"bits": 16}, {"slots": 0}, {"width": 0}, {"dense": -1}, {"norm_bound": 0}, {"norm_bound": 2**27 + 1}],
    ids=str,
)
def test_a_shape_that_cannot_be_proved_is_refused(changes: dict[str, int]) -> None:
    fields = {"bits": 32, "slots": 5, "width": 3, "dense": 4, "norm_bound": 2**27}
    NormShape(**fields)
    with pytest.raises(SpecError):
        NormShape(**fields | changes)


def test_secrets_have_no_repr() -> None:
    session, proof = honest(SMALL)
    for secret in (proof, *session.held(proof), session.verifiers()[0], session.statement):
        text = repr(secret)
        assert session.seeds[0].hex() not in text
        assert str(session.seeds[0])[2:-1] not in text
        assert len(text) < 200
