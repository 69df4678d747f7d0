"""Binary messages: the layout byte by byte, exact lengths, and the right error for everything else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.binary_messages import (
    EACH_FORMAT,
    EACH_KIND,
    EACH_TASK,
    FORMATS,
    PARTIES,
    SEED,
    SESSION,
    Format,
    make_answer,
    make_keys,
    make_sum_share,
    make_update,
    random_corrections,
    random_rows,
    random_words,
)
from tests.unit.sessions import direct, make_round, make_task, random_ring, rng_of

from secemb_shared.dpf import expand_roots
from secemb_shared.errors import LengthError
from secemb_shared.labels import Purpose
from secemb_shared.messages import (
    Sizes,
    TaskSpec,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
    encode_answer,
    encode_sum_share,
    encode_update,
    public_keys_digest,
    public_update_digest,
)
from secemb_shared.messages.codec import slot_checks
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES, SURVEY, TRAIN


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
    assert Sizes.of(make_task()) == Sizes(
        24 + 16 + 3 * 12 * 16 + 5 + 12 * 48, 24 + 12 * 6 * 4, (24 + 12 * 20 + 12, 24 + 12 * 20)
    )


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


@pytest.mark.parametrize(("kind", "count"), [(TRAIN, 0), (SURVEY, 14), (EVALUATE, 22)])
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
    assert data[:8] == b"secemb\x02\x01"
    assert data[24:40] == SEED
    assert data[40 : 40 + 576] == b"".join(
        words.left[level, slot].tobytes() for level in range(3) for slot in range(12)
    )
    bits = [data[616 + index // 8] >> index % 8 & 1 for index in range(36)]
    assert bits == words.right.reshape(-1).tolist()
    assert data[620] >> 4 == 0
    assert data[621:] == random_corrections(make_task()).tobytes()
    checks = slot_checks(round_, SESSION, data)
    assert np.array_equal(checks.corrections[0], random_corrections(make_task()))
    assert checks.leaf_keys.tobytes() == round_.label(SESSION).key(Purpose.LEAF_HASH)


def test_numbers_are_little_endian() -> None:
    round_ = make_round(direct(capacity=1, row_width=1, dense_size=1))
    words, dense = np.array([[0x01020304]], dtype=np.uint32), np.array([5], dtype=np.uint32)
    assert encode_update(round_, SESSION, 0, words, dense)[24:] == b"\x04\x03\x02\x01\x05\x00\x00\x00"
    counted = np.zeros(14, dtype=np.uint64)
    counted[0] = 0x0102030405060708
    for numbers in (counted, counted.astype(">u8")):
        share = encode_sum_share(replace(round_, kind=SURVEY), SESSION, 0, numbers)
        assert share[24:] == b"\x08\x07\x06\x05\x04\x03\x02\x01" + bytes(104)
    answer = np.array([[0x01020304, 6]], dtype=np.uint32)
    assert encode_answer(round_, SESSION, 0, answer)[24:] == b"\x04\x03\x02\x01\x06\x00\x00\x00"
    swapped = words.astype(">u4")
    assert encode_update(round_, SESSION, 1, swapped, None)[24:] == b"\x04\x03\x02\x01"


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
