"""Binary messages that are refused: wrong lengths, places, kinds and parties, each by its error."""

from dataclasses import replace

import pytest
from tests.unit.binary_messages import (
    EACH_FORMAT,
    EACH_KIND,
    EACH_TASK,
    PARTIES,
    SEED,
    SESSION,
    TASKS,
    Format,
    dense_of,
    make_keys,
    random_corrections,
    random_rows,
    random_words,
)
from tests.unit.sessions import make_round, make_task, random_ring, rng_of

from secemb_shared.dpf import HASH_BYTES
from secemb_shared.errors import BindingError, EncodingError, KindError, LengthError, SpecError, VersionError
from secemb_shared.messages import (
    Kind,
    TaskSpec,
    decode_keys,
    encode_keys,
    encode_sum_share,
    encode_update,
)
from secemb_shared.messages.codec import ENVELOPE_BYTES, envelope
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES


@EACH_TASK
@EACH_FORMAT
@PARTIES
def test_a_cut_or_an_extra_byte_is_refused(task: TaskSpec, message: Format, party: int) -> None:
    round_ = message.round(task)
    data = message.encode(round_, SESSION, party)
    message.decode(round_, SESSION, party, data)
    for wrong in (data[:-1], data[1:], data + b"\0", b"\0" + data, data[:ENVELOPE_BYTES], data[:7], b"", data * 2):
        if len(wrong) != len(data):
            with pytest.raises(LengthError):
                message.decode(round_, SESSION, party, wrong)


@EACH_FORMAT
@PARTIES
def test_a_wrong_beginning_is_refused_by_name(message: Format, party: int) -> None:
    round_ = message.round()
    data = message.encode(round_, SESSION, party)
    for at in range(ENVELOPE_BYTES):
        expected = EncodingError if at < 6 else VersionError if at == 6 else KindError if at == 7 else BindingError
        for mask in (1, 0x80):
            wrong = bytearray(data)
            wrong[at] ^= mask
            with pytest.raises(expected):
                message.decode(round_, SESSION, party, bytes(wrong))


@EACH_FORMAT
@PARTIES
def test_another_kind_is_refused_even_with_the_right_length(message: Format, party: int) -> None:
    round_ = message.round()
    data = message.encode(round_, SESSION, party)
    for kind in Kind:
        if kind != message.kind:
            with pytest.raises(KindError):
                message.decode(round_, SESSION, party, envelope(round_, SESSION, kind, party) + data[ENVELOPE_BYTES:])


@EACH_FORMAT
@PARTIES
def test_a_message_for_another_place_is_refused(message: Format, party: int) -> None:
    round_ = message.round()
    data = message.encode(round_, SESSION, party)
    others = [
        replace(round_, number=8),
        replace(round_, model_version=4),
        replace(round_, model_digest=bytes(31) + b"\1"),
        message.round(make_task(name="books")),
        message.round(make_task(min_cohort=3)),
        message.round(make_task(seed=1)),
    ]
    for other in others:
        with pytest.raises(BindingError):
            message.decode(other, SESSION, party, data)
    with pytest.raises(BindingError):
        message.decode(round_, bytes(16), party, data)
    rest = message.encode(round_, SESSION, 1 - party)
    borrowed = rest[:ENVELOPE_BYTES] + data[ENVELOPE_BYTES:]  # the other party's envelope, this party's length
    with pytest.raises(BindingError):
        message.decode(round_, SESSION, party, borrowed)


@EACH_FORMAT
@EACH_KIND
@PARTIES
def test_a_message_for_another_kind_of_round_is_refused(message: Format, kind: str, party: int) -> None:
    round_, other = message.round(), make_round(make_task(), kind=kind)
    if round_ == other:
        return
    data = message.encode(round_, SESSION, party)
    longer = message.kind == Kind.SUM_SHARE and party == 0
    with pytest.raises(LengthError if longer else BindingError):
        message.decode(other, SESSION, party, data)
    body = message.encode(other, SESSION, party)[ENVELOPE_BYTES:]
    with pytest.raises(BindingError):
        message.decode(other, SESSION, party, data[:ENVELOPE_BYTES] + body)


def test_no_two_envelopes_are_alike() -> None:
    rounds = [
        make_round(make_task(name=name), number=number, kind=kind)
        for name in ("films", "books")
        for number in (1, 2)
        for kind in SUM_SIZES
    ]
    sessions = [bytes(16), SESSION]
    made = {
        envelope(round_, session, kind, party)
        for round_ in rounds
        for session in sessions
        for kind in Kind
        for party in (0, 1)
    }
    assert len(made) == len(rounds) * len(sessions) * len(Kind) * 2
    assert {len(one) for one in made} == {ENVELOPE_BYTES}


@pytest.mark.parametrize("bit", range(4, 8))
def test_bits_after_the_last_control_bit_must_be_zero(bit: int) -> None:
    round_ = make_round(make_task())
    data = bytearray(make_keys(round_, SESSION, 0))
    data[620] |= 1 << bit
    with pytest.raises(EncodingError):
        decode_keys(round_, SESSION, 0, bytes(data))


def test_where_no_bits_are_left_over_every_last_byte_is_good() -> None:
    round_ = make_round(TASKS["no padding bits"])
    data = make_keys(round_, SESSION, 0)
    for last in (0, 0x80, 0xFF):
        at = len(data) - round_.task.geometry.slots * HASH_BYTES - 1
        decode_keys(round_, SESSION, 0, data[:at] + bytes([last]) + data[at + 1 :])


def test_shares_for_the_wrong_party_are_not_encoded() -> None:
    round_ = make_round(make_task(), kind=EVALUATE)
    rows, numbers = random_rows(round_.task), random_ring(rng_of(3), round_.sum_size, 64)
    with pytest.raises(SpecError):
        encode_update(round_, SESSION, 0, rows, None)
    with pytest.raises(SpecError):
        encode_update(round_, SESSION, 1, rows, dense_of(round_.task, 0))
    with pytest.raises(SpecError):
        encode_sum_share(round_, SESSION, 0, SEED)
    with pytest.raises(SpecError):
        encode_sum_share(round_, SESSION, 1, numbers)


@EACH_KIND
@pytest.mark.parametrize("count", range(8))
def test_a_sum_share_of_another_length_is_not_encoded(kind: str, count: int) -> None:
    round_, numbers = make_round(make_task(), kind=kind), random_ring(rng_of(3), count, 64)
    if count == SUM_SIZES[kind]:
        encode_sum_share(round_, SESSION, 0, numbers)
        return
    with pytest.raises(SpecError):
        encode_sum_share(round_, SESSION, 0, numbers)


@pytest.mark.parametrize("shape", [6, 12, (2, 3)])
def test_a_sum_share_of_another_ring_or_shape_is_not_encoded(shape: int | tuple[int, ...]) -> None:
    bits = 64 if isinstance(shape, tuple) else 32
    with pytest.raises(SpecError):
        encode_sum_share(make_round(make_task(), kind=EVALUATE), SESSION, 0, random_ring(rng_of(3), shape, bits))


@pytest.mark.parametrize("seed", [b"", SEED[:-1], SEED + b"x"])
def test_a_seed_of_another_length_is_not_encoded(seed: bytes) -> None:
    round_ = make_round(make_task())
    with pytest.raises(SpecError):
        encode_keys(round_, SESSION, 0, seed, random_words(round_.task), random_corrections(round_.task))
    with pytest.raises(SpecError):
        encode_sum_share(round_, SESSION, 1, seed)


@EACH_FORMAT
@pytest.mark.parametrize("session_id", [b"", bytes(15), bytes(17)])
def test_a_session_id_of_another_length_is_refused(message: Format, session_id: bytes) -> None:
    round_ = message.round()
    with pytest.raises(SpecError):
        message.encode(round_, session_id, 0)
    with pytest.raises(SpecError):
        message.decode(round_, session_id, 0, message.encode(round_, SESSION, 0))


@EACH_FORMAT
@pytest.mark.parametrize("party", [-1, 2, 255, 256])
def test_there_is_no_third_party(message: Format, party: int) -> None:
    round_ = message.round()
    with pytest.raises(SpecError):
        message.encode(round_, SESSION, party)
    with pytest.raises(SpecError):
        message.decode(round_, SESSION, party, message.encode(round_, SESSION, 0))
