"""What holds for every message and every byte string: one encoding each, and only errors of the tree."""

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.sessions import make_round, make_task, random_blocks, random_ring, rng_of

from secemb_shared.dpf import HASH_BYTES, CorrectionWords, expand_roots
from secemb_shared.errors import LengthError, SecEmbError, SpecError
from secemb_shared.messages import (
    RoundSpec,
    Sizes,
    TaskSpec,
    canonical,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
    encode_answer,
    encode_keys,
    encode_sum_share,
    encode_update,
)
from secemb_shared.messages.codec import Kind, envelope, slot_checks
from secemb_shared.messages.spec import EVALUATE, OPTIMISERS, SUM_SIZES

SESSION = bytes(range(16))
FIXED = make_round(make_task(), kind=EVALUATE)
DIRECT = (Kind.KEYS, Kind.ANSWER, Kind.UPDATE, Kind.SUM_SHARE)  # relayed ones: tests/unit/test_relayed_messages.py


@st.composite
def tasks(draw: st.DrawFn) -> TaskSpec:
    """Draw a small task, direct or binned."""
    items = draw(st.integers(1, 70))
    straight = draw(st.booleans())
    bits = draw(st.sampled_from([24, 32, 64]))
    cohort = draw(st.integers(2, 1000))
    return make_task(
        name=draw(st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), min_size=1)),
        items=items,
        capacity=draw(st.integers(1, items)),
        row_width=draw(st.integers(1, 9)),
        dense_size=draw(st.integers(0, 9)),
        tables=1 if straight else draw(st.integers(1, 4)),
        bins=1 if straight else draw(st.integers(1, min(items, 12))),
        ring_bits=bits,
        fraction_bits=draw(st.integers(0, bits - 2)),
        row_bits=draw(st.sampled_from([16, 32])),
        bound=draw(st.integers(1, (2 ** (min(bits, 32) - 1) - 1) // cohort)),
        cohort=cohort,
        min_cohort=draw(st.integers(2, cohort)),
        **draw(training()),
    )


@st.composite
def decimals(draw: st.DrawFn) -> str:
    """Draw a number as text: no zero leads, and none ends what is behind the point."""
    whole, behind = draw(st.integers(0, 10**9 - 1)), draw(st.integers(0, 10**12 - 1))
    return f"{whole}.{behind:012}".rstrip("0").rstrip(".")


@st.composite
def training(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what servers train with, and deadlines."""
    upload = draw(st.integers(1, 30 * 86_400))
    return {
        "rounds": draw(st.integers(1, 2**32)),
        "join_seconds": draw(st.integers(1, upload)),
        "upload_seconds": upload,
        "optimiser": draw(st.sampled_from(OPTIMISERS)),
        "seed": draw(st.integers(0, 2**53 - 1)),
        **{name: draw(decimals()) for name in ("row_rate", "dense_rate", "initial_scale")},
    }


@st.composite
def rounds(draw: st.DrawFn) -> RoundSpec:
    number, version = draw(st.integers(0, 2**53 - 1)), draw(st.integers(0, 2**53 - 1))
    digest = draw(st.binary(min_size=32, max_size=32))
    kind = draw(st.sampled_from(sorted(SUM_SIZES)))
    return make_round(draw(tasks()), number=number, model_version=version, digest=digest, kind=kind)


PARTIES = st.integers(0, 1)
SESSIONS = st.binary(min_size=16, max_size=16)


def make_messages(round_: RoundSpec, session_id: bytes, party: int, seed: int) -> dict[Kind, bytes]:
    """Return one message of each kind with random content."""
    task, rng = round_.task, rng_of(seed)
    geometry, bits = task.geometry, task.ring_bits
    right = rng.integers(0, 2, size=(geometry.depth, geometry.slots), dtype=np.uint8)
    words = CorrectionWords(random_blocks(rng, geometry.depth, geometry.slots), right)
    corrections = random_blocks(rng, 3 * geometry.slots).reshape(geometry.slots, HASH_BYTES)
    rows = random_ring(rng, (geometry.slots, task.row_width), bits)
    answer = random_ring(rng, (geometry.slots, task.row_words + 1), 32)
    dense = None if party else random_ring(rng, task.dense_size, bits)
    share = rng.bytes(16) if party else random_ring(rng, round_.sum_size, 64)
    return {
        Kind.KEYS: encode_keys(round_, session_id, party, rng.bytes(16), words, corrections),
        Kind.ANSWER: encode_answer(round_, session_id, party, answer),
        Kind.UPDATE: encode_update(round_, session_id, party, rows, dense),
        Kind.SUM_SHARE: encode_sum_share(round_, session_id, party, share),
    }


def decode(kind: Kind, round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> Any:
    match kind:
        case Kind.KEYS:
            return decode_keys(round_, session_id, party, data)
        case Kind.ANSWER:
            return decode_answer(round_, session_id, party, data)
        case Kind.UPDATE:
            return decode_update(round_, session_id, party, data)
        case Kind.SUM_SHARE:
            return decode_sum_share(round_, session_id, party, data)


def encode(kind: Kind, round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> bytes:
    """Decode the message and encode what came out."""
    decoded = decode(kind, round_, session_id, party, data)
    if kind == Kind.KEYS:
        seed = data[24:40]  # decoding expands it into roots, which is checked below
        assert np.array_equal(decoded.roots[0], expand_roots(round_.label(session_id), seed, decoded.slots))
        words, [corrections] = (
            CorrectionWords(decoded.left[0], decoded.right[0]),
            slot_checks(round_, session_id, data).corrections,
        )
        return encode_keys(round_, session_id, party, seed, words, corrections)
    if kind == Kind.ANSWER:
        return encode_answer(round_, session_id, party, decoded)
    if kind == Kind.UPDATE:
        return encode_update(round_, session_id, party, *decoded)
    return encode_sum_share(round_, session_id, party, decoded)


@given(rounds(), SESSIONS, PARTIES, st.integers(0, 2**32))
def test_decoding_and_encoding_give_the_same_bytes(round_: RoundSpec, session: bytes, party: int, seed: int) -> None:
    for kind, data in make_messages(round_, session, party, seed).items():
        assert encode(kind, round_, session, party, data) == data


@given(rounds(), SESSIONS, PARTIES)
def test_lengths_follow_from_the_round(round_: RoundSpec, session: bytes, party: int) -> None:
    messages, sizes = make_messages(round_, session, party, 0), Sizes.of(round_.task)
    assert len(messages[Kind.KEYS]) == sizes.keys
    assert len(messages[Kind.ANSWER]) == sizes.answer
    assert len(messages[Kind.UPDATE]) == sizes.update[party]
    assert len(messages[Kind.SUM_SHARE]) == 24 + (16 if party else 8 * round_.sum_size)


@given(rounds(), PARTIES, st.data())
def test_any_cut_and_any_extra_bytes_are_refused(round_: RoundSpec, party: int, data: st.DataObject) -> None:
    for kind, message in make_messages(round_, SESSION, party, 0).items():
        cut = data.draw(st.integers(0, len(message) - 1))
        extra = data.draw(st.binary(min_size=1, max_size=50))
        middle = data.draw(st.integers(0, len(message)))
        for wrong in (message[:cut], message[cut + 1 :], message + extra, message[:middle] + extra + message[middle:]):
            with pytest.raises(LengthError):
                decode(kind, round_, SESSION, party, wrong)


@given(st.sampled_from(DIRECT), PARTIES, st.data())
def test_a_changed_byte_is_refused_or_is_another_message(kind: Kind, party: int, data: st.DataObject) -> None:
    """No two byte strings mean the same: what is still accepted encodes to the changed bytes."""
    message = bytearray(make_messages(FIXED, SESSION, party, 0)[kind])
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= data.draw(st.integers(1, 255))
    try:
        again = encode(kind, FIXED, SESSION, party, bytes(message))
    except SecEmbError:
        return
    assert at >= 24
    assert again == bytes(message)


@given(st.sampled_from(DIRECT), PARTIES, st.binary(max_size=2000))
def test_random_bytes_are_refused_with_an_error_of_the_tree(kind: Kind, party: int, data: bytes) -> None:
    with pytest.raises(SecEmbError):
        decode(kind, FIXED, SESSION, party, data)


@given(st.sampled_from(DIRECT), PARTIES, st.integers(0, 2**32))
def test_random_bytes_of_the_right_length_raise_nothing_else(kind: Kind, party: int, seed: int) -> None:
    good, rng = make_messages(FIXED, SESSION, party, 0)[kind], rng_of(seed)
    with pytest.raises(SecEmbError):
        decode(kind, FIXED, SESSION, party, rng.bytes(len(good)))
    try:
        decode(kind, FIXED, SESSION, party, envelope(FIXED, SESSION, kind, party) + rng.bytes(len(good) - 24))
    except SecEmbError:
        assert kind == Kind.KEYS  # padding bits; every other body of the right length means something


@given(rounds())
def test_specifications_come_back(round_: RoundSpec) -> None:
    task = TaskSpec.decode(round_.task.encode())
    assert task == round_.task
    assert task.encode() == round_.task.encode()
    again = RoundSpec.decode(round_.encode(), task)
    assert again == round_
    assert again.digest == round_.digest


@given(rounds(), rounds())
def test_two_specifications_have_two_digests(one: RoundSpec, other: RoundSpec) -> None:
    assert (one == other) == (one.digest == other.digest)
    assert (one.task == other.task) == (one.task.task_id == other.task.task_id)


@given(decimals(), decimals())
def test_two_texts_are_two_decimals(one: str, other: str) -> None:
    assert (Fraction(one) == Fraction(other)) == (one == other)
    assert canonical.decimal(one) == float(Fraction(one))


@given(st.text("0123456789.-+eE_ ", max_size=12))
@example("0.0250")
@example("00.1")
def test_a_text_is_refused_or_is_the_only_one_for_its_number(text: str) -> None:
    try:
        canonical.decimal(text)
    except SpecError:
        return
    whole, _, behind = text.partition(".")
    assert text == (f"{int(whole)}." + behind.rstrip("0")).rstrip(".")


def read_round(data: bytes) -> RoundSpec:
    return RoundSpec.decode(data, FIXED.task)


READERS = st.sampled_from([TaskSpec.decode, read_round])
Reader = Callable[[bytes], TaskSpec | RoundSpec]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=20), st.binary().map(str)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def only_errors_of_the_tree(reader: Reader, data: bytes) -> None:
    try:
        read = reader(data)
    except SecEmbError:
        return
    assert read.encode() == data  # accepted: then these are its only bytes


@given(READERS, st.binary(max_size=300))
@example(TaskSpec.decode, b"\xff")
@example(TaskSpec.decode, b'{"a":' * 3000)
def test_random_bytes_are_no_specification(reader: Reader, data: bytes) -> None:
    with pytest.raises(SecEmbError):
        reader(data)


@given(READERS, VALUES, st.booleans(), st.booleans())
def test_random_json_is_no_specification(reader: Reader, value: Any, compact: bool, ascii_only: bool) -> None:
    separators = (",", ":") if compact else None
    text = json.dumps(value, sort_keys=True, separators=separators, ensure_ascii=ascii_only)
    with pytest.raises(SecEmbError):
        reader(text.encode("utf-8", "surrogatepass"))


@given(READERS, st.data())
def test_a_field_with_any_value_is_refused_or_means_just_that(reader: Reader, data: st.DataObject) -> None:
    good = json.loads((FIXED if reader is read_round else FIXED.task).encode())
    names = data.draw(st.lists(st.sampled_from(sorted(good)), min_size=1, max_size=3))
    changes = {
        name: data.draw(VALUES | st.integers(-5, 5000) | st.sampled_from(["", "a", 2**53, 2**31])) for name in names
    }
    only_errors_of_the_tree(reader, json.dumps(good | changes, sort_keys=True, separators=(",", ":")).encode())


@given(READERS, st.data())
def test_a_changed_text_is_refused_or_means_just_that(reader: Reader, data: st.DataObject) -> None:
    good = (FIXED if reader is read_round else FIXED.task).encode()
    at, until = sorted((data.draw(st.integers(0, len(good))), data.draw(st.integers(0, len(good)))))
    middle = data.draw(st.binary(max_size=8) | st.text('0123456789{}[]":,.-eE \\utrnfal', max_size=8).map(str.encode))
    only_errors_of_the_tree(reader, good[:at] + middle + good[min(until, at + 3) :])
