"""Ranges of slots: cut anywhere, they give the same bits as the whole round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import EACH_BACKEND, SHAPES, bit_table, make_round, make_task, random_keys, random_ring, rng_of

from secemb_party.compute.slots import SlotTable, add_piece, slot_ranges
from secemb_shared import row_access
from secemb_shared.dpf import Backend, SlotChecks, default_backend
from secemb_shared.layout import Geometry
from secemb_shared.messages import TaskSpec

KEYS = rng_of(1).integers(0, 256, size=(4, 16), dtype=np.uint8)
EACH_SHAPE = pytest.mark.parametrize("task", SHAPES.values(), ids=SHAPES.keys())


def checks_of(task: TaskSpec, sessions: int) -> SlotChecks:
    """Return corrections that nobody made."""
    rng = rng_of(2)
    corrections = rng.integers(0, 256, size=(sessions, task.geometry.slots, 48), dtype=np.uint8)
    return SlotChecks(rng.integers(0, 256, size=(sessions, 16), dtype=np.uint8), corrections)


@EACH_BACKEND
@EACH_SHAPE
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_ranges_together_compute_what_the_whole_round_does(task: TaskSpec, backend: Backend, workers: int) -> None:
    round_, rows = make_round(task), bit_table(task)
    held, checks = random_keys(task.geometry, 2, 1, rng_of(3)), checks_of(task, 2)
    words = random_ring(rng_of(4), 2 * task.geometry.slots * task.row_width, task.ring_bits)
    words = words.reshape(2, task.geometry.slots, task.row_width)
    tagged, sums, slot_sums = row_access.tag_rows(round_, rows), row_access.empty_sums(round_), np.empty_like(words)
    answers, prints = backend.answer_checked(held, round_.leaf_table, tagged, checks, KEYS)
    backend.accumulate(held, round_.leaf_table, words, sums, slot_sums)

    parts = [SlotTable(round_, one, rows, backend) for one in slot_ranges(task.geometry, workers)]
    found = [one.answer_checked(one.slots.keys(held), one.slots.checks(checks), KEYS) for one in parts]
    assert np.array_equal(np.concatenate([some for some, _ in found], axis=1), answers)
    assert np.array_equal(np.bitwise_xor.reduce([some for _, some in found]), prints)
    total, own_sums = row_access.empty_sums(round_), []
    for part in parts:
        partial = part.empty_sums()
        wanted = part.add(part.slots.keys(held), part.slots.words(words), partial, slot_sums=True)
        assert wanted is not None
        own_sums.append(wanted)
        for first, last in part.cuts(7):
            add_piece(total, *part.piece(partial, first, last))
    assert np.array_equal(total, sums)
    assert np.array_equal(np.concatenate(own_sums, axis=1), slot_sums)


def test_a_fingerprint_depends_on_which_slots_a_range_has() -> None:
    task = make_task()
    round_, held, checks = make_round(task), random_keys(task.geometry, 1, 0, rng_of(5)), checks_of(task, 1)
    second = slot_ranges(task.geometry, 2)[1]
    part = SlotTable(round_, second, bit_table(task), default_backend())
    own = second.checks(checks)
    _, right = part.answer_checked(second.keys(held), own, KEYS)
    _, wrong = part.answer_checked(second.keys(held), SlotChecks(own.leaf_keys, own.corrections), KEYS)
    assert not np.array_equal(right, wrong)


@EACH_SHAPE
def test_some_bins_have_the_items_that_they_have_in_the_whole_layout(task: TaskSpec) -> None:
    layout = make_round(task).layout
    whole = layout.order()
    for first in range(len(whole)):
        for last in range(first + 1, min(len(whole), first + 6) + 1):
            assert np.array_equal(layout.order_of(first, last), whole[first:last])


@EACH_SHAPE
def test_no_piece_of_the_sums_names_an_item_twice_and_all_pieces_name_each_in_every_table(task: TaskSpec) -> None:
    round_, named = make_round(task), []
    for one in slot_ranges(task.geometry, 3):
        part = SlotTable(round_, one, bit_table(task))
        for first, last in part.cuts(11):
            items, _ = part.piece(part.empty_sums(), first, last)
            assert np.unique(items).size == items.size
            named.append(items)
    times = np.bincount(np.concatenate(named), minlength=task.items)
    if task.geometry.is_direct:  # its only bin is at every worker, which has some of its slots
        assert set(times) == {len(slot_ranges(task.geometry, 3))}
    else:
        assert set(times) == {task.geometry.tables}


@given(st.integers(1, 4), st.integers(1, 40), st.sampled_from([1, 1, 3]), st.integers(1, 50))
def test_ranges_cover_every_slot_once_and_cut_no_bin(tables: int, bins: int, per_bin: int, workers: int) -> None:
    geometry = Geometry(items=200, tables=tables, bins=bins, slots_per_bin=per_bin)
    ranges = slot_ranges(geometry, workers)
    assert 1 <= len(ranges) <= workers
    assert [slot for one in ranges for slot in range(one.first, one.last)] == list(range(geometry.slots))
    if tables * bins > 1:
        assert all(one.first % per_bin == 0 for one in ranges)
