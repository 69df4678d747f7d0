"""Reading rows: the exact bits come back, and whatever is altered, stale or mixed up is noticed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import (
    BACKENDS,
    EACH_BACKEND,
    SHAPES,
    bit_table,
    both_keys,
    direct,
    ids,
    make_round,
    make_task,
    rng_of,
    seeded,
)

from secemb_shared import row_access
from secemb_shared.dpf import Backend, HeldKeys
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import RowTagError, SpecError
from secemb_shared.labels import Purpose
from secemb_shared.layout import PADDING, Placement
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices
from secemb_shared.row_words import Rows

TASKS = SHAPES | {"narrow": make_task(row_width=1)}
EACH_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
ITEMS = ids(2, 21, 7, 0, 22)

Answers = tuple[Words32, Words32]


@dataclass(frozen=True)
class Exchange:
    """A device that has asked both servers."""

    round: RoundSpec
    placement: Placement
    held: tuple[HeldKeys, HeldKeys]

    def answer(self, party: int, tagged: Words32) -> Words32:
        words: Words32 = row_access.answer(self.round, self.held[party], tagged)[0]
        return words

    def answers(self, tagged: Words32) -> Answers:
        return self.answer(0, tagged), self.answer(1, tagged)

    def recover(self, answers: Answers) -> tuple[Indices, Rows]:
        return row_access.recover(self.round, self.placement, answers)

    def slot(self, item: int) -> int:
        return int(np.flatnonzero(self.placement.items == item)[0])


def exchange(task: TaskSpec, items: Indices, backend: Backend = BACKENDS[-1], seed: int = 0) -> Exchange:
    round_ = make_round(task)
    placement = round_.layout.place(items, seeded(seed))
    held0, held1, *_ = both_keys(backend, placement.leaves, task.geometry.depth, seed)
    return Exchange(round_, placement, (held0, held1))


def bits(rows: Rows) -> list[list[int]]:
    found: list[list[int]] = rows.view(np.uint32).tolist()
    return found


@EACH_BACKEND
@EACH_TASK
def test_rows_come_back_bit_for_bit(backend: Backend, task: TaskSpec) -> None:
    table = bit_table(task)
    asked = rng_of(1).permutation(task.items)[: task.capacity].astype(np.int64)
    device = exchange(task, asked, backend)
    tagged = row_access.tag_rows(device.round, table, backend)
    shares = [row_access.answer(device.round, held, tagged, backend)[0] for held in device.held]
    items, rows = row_access.recover(device.round, device.placement, (shares[0], shares[1]), backend)
    assert items.size == asked.size - device.placement.truncated > 0
    assert bits(rows) == bits(table[items])


@EACH_BACKEND
def test_every_kind_of_float_keeps_its_bits(backend: Backend) -> None:
    patterns = [
        0x00000000,  # 0
        0x80000000,  # −0
        0x00000001,  # the smallest denormal
        0x807FFFFF,  # the largest negative denormal
        0x7F800000,  # ∞
        0xFF800000,  # −∞
        0x7FC00000,  # a quiet NaN
        0x7F800001,  # a signalling NaN with a payload
        0xFFFFFFFF,  # a negative NaN with all of it
        0x3F800000,  # 1
        0x7F7FFFFF,  # the largest number
    ]
    task = direct(items=len(patterns), capacity=len(patterns), row_width=1)
    table = np.array(patterns, dtype=np.uint32).view(np.float32).reshape(-1, 1)
    device = exchange(task, np.arange(len(patterns), dtype=np.int64), backend)
    items, rows = device.recover(device.answers(row_access.tag_rows(device.round, table, backend)))
    assert {int(item): row[0] for item, row in zip(items, bits(rows), strict=True)} == dict(enumerate(patterns))


def test_a_device_without_items_reads_nothing() -> None:
    device = exchange(make_task(), ids())
    items, rows = device.recover(device.answers(row_access.tag_rows(device.round, bit_table(device.round.task))))
    assert items.shape == (0,)
    assert rows.shape == (0, 5)


def test_one_answer_alone_is_not_the_row() -> None:
    device = exchange(direct(items=64, capacity=6), ids(1, 2, 3, 4, 5, 6))
    tagged = row_access.tag_rows(device.round, bit_table(device.round.task))
    for share in device.answers(tagged):
        assert not (share[device.placement.items != PADDING] == tagged[device.placement.leaves]).all(axis=1).any()


@EACH_TASK
def test_a_flipped_bit_in_any_column_is_noticed(task: TaskSpec) -> None:
    asked = np.arange(min(task.capacity, 5), dtype=np.int64)
    device = exchange(task, asked)
    answers = device.answers(row_access.tag_rows(device.round, bit_table(task)))
    slots = np.flatnonzero(device.placement.items != PADDING)
    for column in range(task.row_words + 1):
        for bit in (0, 17, 31):
            party, slot = (column + bit) % 2, slots[(column + bit) % slots.size]
            altered = [share.copy() for share in answers]
            altered[party][slot, column] ^= np.uint32(1 << bit)
            with pytest.raises(RowTagError):
                device.recover((altered[0], altered[1]))
    device.recover(answers)


def with_stale(device: Exchange, party: int, stale: Words32, fresh: Words32) -> Answers:
    shares = [device.answer(number, stale if number == party else fresh) for number in (0, 1)]
    return shares[0], shares[1]


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("task", [TASKS["binned"], TASKS["direct"]], ids=["binned", "direct"])
def test_a_stale_model_on_one_server_is_noticed(task: TaskSpec, party: int) -> None:
    device = exchange(task, ITEMS)
    table = bit_table(task)
    fresh = row_access.tag_rows(device.round, table)
    older = make_round(task, model_version=device.round.model_version - 1)
    same_rows, old_rows = row_access.tag_rows(older, table), row_access.tag_rows(older, bit_table(task, seed=1))
    one_row = table.copy()
    one_row[21] = 0.5  # the only row that the last step moved
    for stale in (same_rows, old_rows, row_access.tag_rows(older, one_row)):
        with pytest.raises(RowTagError):
            device.recover(with_stale(device, party, stale, fresh))


def test_a_stale_model_on_both_servers_is_noticed() -> None:
    device = exchange(make_task(), ITEMS)
    older = make_round(device.round.task, model_version=2)
    with pytest.raises(RowTagError):
        device.recover(device.answers(row_access.tag_rows(older, bit_table(device.round.task))))


def swapped(share: Words32, one: int, other: int) -> Words32:
    moved = share.copy()
    moved[[one, other]] = share[[other, one]]
    return moved


@pytest.mark.parametrize("parties", [(0,), (1,), (0, 1)])
def test_swapped_slots_are_noticed(parties: tuple[int, ...]) -> None:
    device = exchange(make_task(), ITEMS)
    answers = device.answers(row_access.tag_rows(device.round, bit_table(device.round.task)))
    one, other = device.slot(7), device.slot(21)
    moved = [swapped(share, one, other) if party in parties else share for party, share in enumerate(answers)]
    with pytest.raises(RowTagError):
        device.recover((moved[0], moved[1]))


def test_the_row_of_another_item_is_noticed() -> None:
    device = exchange(make_task(), ITEMS)
    tagged = row_access.tag_rows(device.round, bit_table(device.round.task))
    answers = device.answers(tagged)
    for other in (8, 21):
        forged = answers[1].copy()
        forged[device.slot(7)] = answers[0][device.slot(7)] ^ tagged[other]
        with pytest.raises(RowTagError):
            device.recover((answers[0], forged))


@pytest.mark.parametrize(
    "combine",
    [
        lambda tagged: tagged[7] ^ tagged[8],
        lambda tagged: tagged[1] ^ tagged[2],
        lambda tagged: tagged[1] ^ tagged[2] ^ tagged[3],
        lambda tagged: np.bitwise_xor.reduce(tagged, axis=0),
        lambda tagged: np.full_like(tagged[0], 1),
        lambda tagged: np.full_like(tagged[0], 2**32 - 1),
    ],
    ids=["another row", "two rows", "three rows", "all rows", "ones", "every bit"],
)
def test_a_linear_combination_of_good_rows_is_noticed(combine: Callable[[Words32], Words32]) -> None:
    """An XOR checksum would let these through; the tag is not linear."""
    device = exchange(make_task(), ITEMS)
    tagged = row_access.tag_rows(device.round, bit_table(device.round.task))
    answers = device.answers(tagged)
    constant = combine(tagged)
    with pytest.raises(RowTagError):
        device.recover((answers[0] ^ constant, answers[1]))
    with pytest.raises(RowTagError):
        device.recover((answers[0] ^ constant, answers[1] ^ constant ^ tagged[5]))
    items, rows = device.recover((answers[0] ^ constant, answers[1] ^ constant))  # the same on both sides cancels out
    assert bits(rows) == bits(bit_table(device.round.task)[items])


def test_an_xor_checksum_would_not_notice() -> None:
    """The planted fault: with a linear tag the row of another item checks out."""
    rows = bit_table(make_task()).view(np.uint32)
    linear = np.concatenate([rows, np.bitwise_xor.reduce(rows, axis=1)[:, None]], axis=1)
    mixed = linear[7] ^ linear[7] ^ linear[8] ^ linear[3] ^ linear[4]
    assert np.bitwise_xor.reduce(mixed[:-1]) == mixed[-1]


def test_a_wrong_padding_slot_is_nobody_s_row() -> None:
    device = exchange(make_task(), ITEMS)
    answers = device.answers(row_access.tag_rows(device.round, bit_table(device.round.task)))
    answers[0][device.placement.items == PADDING] ^= np.uint32(1)
    items, rows = device.recover(answers)
    assert bits(rows) == bits(bit_table(device.round.task)[items])


@EACH_BACKEND
def test_a_tag_depends_on_the_row_the_item_and_the_version(backend: Backend) -> None:
    task = make_task(items=200, capacity=6)
    same = np.ones((200, 5), dtype=np.float32)
    tags = row_access.tag_rows(make_round(task), same, backend)[:, -1]
    assert np.unique(tags).size == 200
    later = row_access.tag_rows(make_round(task, model_version=4), same, backend)[:, -1]
    other_task = row_access.tag_rows(make_round(make_task(items=200, capacity=6, name="books")), same, backend)[:, -1]
    changed = same.copy()
    changed[:, 3] = np.nextafter(np.float32(1), np.float32(2))
    rows = row_access.tag_rows(make_round(task), changed, backend)[:, -1]
    for others in (later, other_task, rows):
        assert not (others == tags).any()


@EACH_BACKEND
def test_tags_are_those_computed_by_hand(backend: Backend) -> None:
    round_ = make_round(make_task())
    table = bit_table(round_.task)
    key = round_.model_label.key(Purpose.ROW_TAG)
    by_hand = [reference.row_tag(key, item, row) for item, row in enumerate(bits(table))]
    tagged = row_access.tag_rows(round_, table, backend)
    assert tagged[:, -1].tolist() == by_hand
    assert tagged[:, :-1].tolist() == bits(table)


def test_every_round_that_reads_a_version_has_the_same_tags() -> None:
    task = make_task()
    first, second = (row_access.tag_rows(make_round(task, number=number), bit_table(task)) for number in (1, 2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    "table",
    [np.zeros((23, 5)), np.zeros((23, 4), np.float32), np.zeros((22, 5), np.float32), np.zeros(115, np.float32)],
    ids=["float64", "narrow", "short", "flat"],
)
def test_a_table_of_another_shape_is_refused(table: Rows) -> None:
    with pytest.raises(SpecError):
        row_access.tag_rows(make_round(make_task()), table)


def test_a_table_in_any_memory_order_gives_the_same_words() -> None:
    round_ = make_round(make_task())
    table = bit_table(round_.task)
    assert np.array_equal(row_access.tag_rows(round_, table), row_access.tag_rows(round_, np.asfortranarray(table)))
