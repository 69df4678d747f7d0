"""Binary messages: the layout byte by byte, exact lengths, and the right error for everything else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.unit.sessions import direct, make_round, make_task, random_blocks, random_ring, rng_of

from secemb_shared.dpf import CorrectionWords, RingArray, expand_roots
from secemb_shared.errors import BindingError, EncodingError, KindError, LengthError, SpecError, VersionError
from secemb_shared.messages import (
    Kind,
    RoundSpec,
    Sizes,
    TaskSpec,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
    encode_answer,
    encode_keys,
    encode_sum_share,
    encode_update,
    public_keys_digest,
    public_update_digest,
)
from secemb_shared.messages.envelope import ENVELOPE_BYTES, envelope
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES, SURVEY, TRAIN

SESSION = bytes(range(16))
SEED = b"sixteen byte key"
TASKS = {
    "binned": make_task(),  # 3 · 12 control bits: four padding bits
    "no padding bits": make_task(tables=2),
    "direct": direct(),
    "64 bits": make_task(ring_bits=64, fraction_bits=20),
    "no levels": make_task(items=5, capacity=5, tables=1, bins=5),
    "no dense part": make_task(dense_size=0),
}
EACH_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def random_words(task: TaskSpec, seed: int = 0) -> CorrectionWords:
    geometry, rng = task.geometry, rng_of(seed)
    bits = rng.integers(0, 2, size=(geometry.depth, geometry.slots), dtype=np.uint8)
    return CorrectionWords(random_blocks(rng, geometry.depth, geometry.slots), bits)


def random_rows(task: TaskSpec, extra: int = 0) -> RingArray:
    bits = 32 if extra else task.ring_bits
    return random_ring(rng_of(1), (task.geometry.slots, task.row_width + extra), bits)


def dense_of(task: TaskSpec, party: int) -> RingArray | None:
    return random_ring(rng_of(2), task.dense_size, task.ring_bits) if party == 0 else None


@dataclass(frozen=True)
class Format:
    """One message: how it is made and how it is read, and in which kind of round."""

    kind: Kind
    encode: Callable[[RoundSpec, bytes, int], bytes]
    decode: Callable[[RoundSpec, bytes, int, bytes], object]
    round_kind: str = TRAIN

    def __str__(self) -> str:
        return f"{self.kind.name} {self.round_kind}"

    def round(self, task: TaskSpec | None = None) -> RoundSpec:
        return make_round(task or make_task(), kind=self.round_kind)


def make_keys(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_keys(round_, session_id, party, SEED, random_words(round_.task))


def make_answer(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_answer(round_, session_id, party, random_rows(round_.task, extra=1))


def make_update(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_update(round_, session_id, party, random_rows(round_.task), dense_of(round_.task, party))


def make_sum_share(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    share = SEED if party else random_ring(rng_of(3), round_.sum_size, 64)
    return encode_sum_share(round_, session_id, party, share)


FORMATS = [
    Format(Kind.KEYS, make_keys, decode_keys),
    Format(Kind.ANSWER, make_answer, decode_answer),
    Format(Kind.UPDATE, make_update, decode_update),
    *(Format(Kind.SUM_SHARE, make_sum_share, decode_sum_share, kind) for kind in SUM_SIZES),
]
EACH_FORMAT = pytest.mark.parametrize("message", FORMATS, ids=str)
EACH_KIND = pytest.mark.parametrize("kind", SUM_SIZES)
PARTIES = pytest.mark.parametrize("party", [0, 1])


@EACH_TASK
@PARTIES
def test_lengths_are_those_the_task_fixes(task: TaskSpec, party: int) -> None:
    round_, sizes = make_round(task), Sizes.of(task)
    lengths = [len(message.encode(round_, SESSION, party)) for message in FORMATS[:3]]
    assert lengths == [sizes.keys, sizes.answer, sizes.update[party]]
    assert sizes.upload == 2 * sizes.keys + sizes.update[0] + sizes.update[1]
    assert sizes.download == 2 * sizes.answer


def test_lengths_are_those_of_the_formula() -> None:
    """Slots 12, depth 3, width 5, dense 3, 32 bits."""
    assert Sizes.of(make_task()) == Sizes(24 + 16 + 3 * 12 * 16 + 5, 24 + 12 * 6 * 4, (24 + 12 * 20 + 12, 24 + 12 * 20))


@EACH_TASK
@PARTIES
def test_keys_come_back(task: TaskSpec, party: int) -> None:
    round_, words = make_round(task), random_words(task)
    held = decode_keys(round_, SESSION, party, make_keys(round_, SESSION, party))
    assert held.party == party
    assert held.keys.shape == (1, 3, 16)
    assert np.array_equal(held.left[0], words.left)
    assert np.array_equal(held.right[0], words.right)
    assert np.array_equal(held.roots[0], expand_roots(round_.label(SESSION), SEED, task.geometry.slots))


@EACH_TASK
@PARTIES
def test_answers_and_updates_come_back(task: TaskSpec, party: int) -> None:
    round_ = make_round(task)
    answer = decode_answer(round_, SESSION, party, make_answer(round_, SESSION, party))
    assert np.array_equal(answer, random_rows(task, extra=1))
    words, dense = decode_update(round_, SESSION, party, make_update(round_, SESSION, party))
    assert words.dtype == task.ring.dtype
    assert np.array_equal(words, random_rows(task))
    assert (dense is None) == (party == 1)
    if dense is not None:
        assert np.array_equal(dense, random_ring(rng_of(2), task.dense_size, task.ring_bits))


@EACH_TASK
@EACH_KIND
def test_sum_shares_come_back_in_their_own_ring(task: TaskSpec, kind: str) -> None:
    round_ = make_round(task, kind=kind)
    numbers = random_ring(rng_of(3), SUM_SIZES[kind], 64)
    explicit = decode_sum_share(round_, SESSION, 0, encode_sum_share(round_, SESSION, 0, numbers))
    assert isinstance(explicit, np.ndarray)
    assert explicit.dtype == np.uint64
    assert np.array_equal(explicit, numbers)
    assert decode_sum_share(round_, SESSION, 1, encode_sum_share(round_, SESSION, 1, SEED)) == SEED


@pytest.mark.parametrize(("kind", "count"), [(TRAIN, 0), (SURVEY, 13), (EVALUATE, 22)])
def test_the_length_of_a_sum_share_follows_from_the_kind_of_the_round(kind: str, count: int) -> None:
    round_ = make_round(make_task(), kind=kind)
    assert round_.sum_size == count
    assert [len(make_sum_share(round_, SESSION, party)) for party in (0, 1)] == [24 + 8 * count, 40]


def test_the_sum_share_of_a_training_round_has_no_numbers() -> None:
    round_ = make_round(make_task())
    data = make_sum_share(round_, SESSION, 0)
    nothing = decode_sum_share(round_, SESSION, 0, data)
    assert isinstance(nothing, np.ndarray)
    assert nothing.shape == (0,)
    with pytest.raises(LengthError):
        decode_sum_share(round_, SESSION, 0, data + bytes(8))


def test_the_bytes_of_a_keys_message_stand_where_the_text_says() -> None:
    round_, words = make_round(make_task()), random_words(make_task())
    data = make_keys(round_, SESSION, 1)
    assert data[:8] == b"secemb\x01\x01"
    assert data[24:40] == SEED
    assert data[40 : 40 + 576] == b"".join(
        words.left[level, slot].tobytes() for level in range(3) for slot in range(12)
    )
    bits = [data[616 + index // 8] >> index % 8 & 1 for index in range(36)]
    assert bits == words.right.reshape(-1).tolist()
    assert data[-1] >> 4 == 0


def test_numbers_are_little_endian() -> None:
    round_ = make_round(direct(capacity=1, row_width=1, dense_size=1))
    words, dense = np.array([[0x01020304]], dtype=np.uint32), np.array([5], dtype=np.uint32)
    assert encode_update(round_, SESSION, 0, words, dense)[24:] == b"\x04\x03\x02\x01\x05\x00\x00\x00"
    counted = np.zeros(13, dtype=np.uint64)
    counted[0] = 0x0102030405060708
    for numbers in (counted, counted.astype(">u8")):
        share = encode_sum_share(replace(round_, kind=SURVEY), SESSION, 0, numbers)
        assert share[24:] == b"\x08\x07\x06\x05\x04\x03\x02\x01" + bytes(96)
    answer = np.array([[0x01020304, 6]], dtype=np.uint32)
    assert encode_answer(round_, SESSION, 0, answer)[24:] == b"\x04\x03\x02\x01\x06\x00\x00\x00"
    swapped = words.astype(">u4")
    assert encode_update(round_, SESSION, 1, swapped, None)[24:] == b"\x04\x03\x02\x01"


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
    data[-1] |= 1 << bit
    with pytest.raises(EncodingError):
        decode_keys(round_, SESSION, 0, bytes(data))


def test_where_no_bits_are_left_over_every_last_byte_is_good() -> None:
    round_ = make_round(TASKS["no padding bits"])
    data = make_keys(round_, SESSION, 0)
    for last in (0, 0x80, 0xFF):
        decode_keys(round_, SESSION, 0, data[:-1] + bytes([last]))


@EACH_TASK
@EACH_FORMAT
@PARTIES
def test_a_message_may_lie_anywhere_in_memory(task: TaskSpec, message: Format, party: int) -> None:
    round_ = message.round(task)
    data = message.encode(round_, SESSION, party)
    straight = message.decode(round_, SESSION, party, data)
    for offset in range(1, 9):
        shifted: Any = memoryview(bytes(offset) + data + bytes(3))[offset : offset + len(data)]
        assert as_lists(message.decode(round_, SESSION, party, shifted)) == as_lists(straight)
    views: list[Any] = [bytearray(data), np.frombuffer(data, dtype=np.uint8).data]
    for view in views:
        assert as_lists(message.decode(round_, SESSION, party, view)) == as_lists(straight)


def as_lists(decoded: object) -> object:
    """Return what was decoded in a form that can be compared."""
    if isinstance(decoded, tuple):
        return [as_lists(part) for part in decoded]
    if hasattr(decoded, "roots"):
        return [getattr(decoded, name).tolist() for name in ("keys", "roots", "left", "right")]
    return decoded.tolist() if isinstance(decoded, np.ndarray) else decoded


@EACH_TASK
def test_numbers_are_aligned_for_the_kernel(task: TaskSpec) -> None:
    round_ = make_round(task)
    for offset in range(8):
        moved: Any = memoryview(bytes(offset) + make_update(round_, SESSION, 0))[offset:]
        words, _ = decode_update(round_, SESSION, 0, moved)
        assert words.flags.aligned
        assert words.flags.c_contiguous


def test_the_public_part_is_the_same_for_both_and_its_digest_too() -> None:
    round_ = make_round(make_task())
    keys = [make_keys(round_, SESSION, party) for party in (0, 1)]
    updates = [make_update(round_, SESSION, party) for party in (0, 1)]
    assert public_keys_digest(keys[0]) == public_keys_digest(keys[1])
    assert public_update_digest(round_, updates[0]) == public_update_digest(round_, updates[1])


def test_the_digests_cover_all_that_is_public_and_nothing_else() -> None:
    round_ = make_round(make_task())
    keys, update = make_keys(round_, SESSION, 0), make_update(round_, SESSION, 0)
    public = len(update) - round_.task.dense_size * 4
    for at in range(len(keys)):
        same = public_keys_digest(flipped(keys, at)) == public_keys_digest(keys)
        assert same == (at < 40), at
    for at in range(len(update)):
        same = public_update_digest(round_, flipped(update, at)) == public_update_digest(round_, update)
        assert same == (at < 24 or at >= public), at


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


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
        encode_keys(round_, SESSION, 0, seed, random_words(round_.task))
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
