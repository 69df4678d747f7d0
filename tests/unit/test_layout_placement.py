"""Placing a device's items: the paper's PadOrTruncIdx and PadOrTruncEmb."""

import numpy as np
import pytest

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label
from secemb_shared.layout import PADDING, BinnedLayout, DirectLayout, Geometry, Layout, Placement
from secemb_shared.layout.placement import UNMATCHED, maximum_matching
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes


def binned(*, items: int = 100, tables: int = 4, bins: int = 5, capacity: int = 12, number: int = 1) -> BinnedLayout:
    geometry = Geometry(items=items, tables=tables, bins=bins, slots_per_bin=1)
    return BinnedLayout(geometry, capacity=capacity, label=Label(bytes(32), number))


def direct(*, items: int = 100, capacity: int = 12) -> DirectLayout:
    return DirectLayout(Geometry(items=items, tables=1, bins=1, slots_per_bin=capacity))


def ids(*numbers: int) -> Indices:
    return np.array(numbers, dtype=np.int64)


def seeded(seed: int) -> RandomBytes:
    return np.random.default_rng(seed).bytes


BOTH = pytest.mark.parametrize("layout", [binned(), direct()], ids=["binned", "direct"])


@BOTH
def test_all_items_are_placed_when_there_is_room(layout: Layout) -> None:
    placement = layout.place(ids(3, 99, 0, 50))
    assert sorted(placement.items[placement.items != PADDING].tolist()) == [0, 3, 50, 99]
    assert placement.truncated == 0


@BOTH
def test_a_device_without_items_sends_only_padding(layout: Layout) -> None:
    placement = layout.place(ids())
    assert (placement.items == PADDING).all()
    assert placement.items.shape == placement.leaves.shape == (layout.geometry.slots,)
    assert placement.truncated == 0


@BOTH
def test_more_items_than_the_capacity_are_cut_to_a_sample(layout: Layout) -> None:
    placement = layout.place(np.arange(100, dtype=np.int64))
    placed = np.count_nonzero(placement.items != PADDING)
    assert placed <= 12
    assert placement.truncated == 100 - placed


@BOTH
@pytest.mark.parametrize("wrong", [ids(1, 77, 1), ids(77, 100), ids(77, -1)], ids=["twice", "above", "below"])
def test_items_that_cannot_be_are_refused_without_being_named(layout: Layout, wrong: Indices) -> None:
    with pytest.raises(LayoutError) as caught:
        layout.place(wrong)
    assert not any(character.isdigit() for character in str(caught.value))


@BOTH
@pytest.mark.parametrize("wrong", [np.zeros((1, 1), dtype=np.int64), np.zeros(1)], ids=["square", "floats"])
def test_items_must_be_a_flat_array_of_integers(layout: Layout, wrong: Indices) -> None:
    with pytest.raises(LayoutError):
        layout.place(wrong)


@BOTH
def test_the_same_random_bytes_give_the_same_placement(layout: Layout) -> None:
    first, second = (layout.place(ids(1, 2, 3), seeded(5)) for _ in range(2))
    assert np.array_equal(first.items, second.items)
    assert np.array_equal(first.leaves, second.leaves)


@BOTH
def test_a_placement_does_not_show_its_items(layout: Layout) -> None:
    few, many = layout.place(ids(77)), layout.place(np.arange(50, dtype=np.int64))
    assert repr(few) == repr(many) == str(few) == f"Placement(slots={layout.geometry.slots})"


def test_direct_padding_is_different_items_the_device_does_not_have() -> None:
    placement = direct(items=20, capacity=15).place(ids(0, 1, 2, 3, 4))
    assert np.unique(placement.leaves).size == 15
    padding = placement.leaves[placement.items == PADDING]
    assert padding.min() > 4


def test_direct_capacity_beyond_the_catalogue_repeats_items() -> None:
    placement = direct(items=5, capacity=12).place(ids(0, 1, 2))
    assert set(placement.leaves.tolist()) == {0, 1, 2, 3, 4}
    assert placement.leaves.max() < 5


@pytest.mark.parametrize("layout", [binned(items=1, bins=1, capacity=3), direct(items=1, capacity=3)])
def test_a_catalogue_of_one_item_works(layout: Layout) -> None:
    placement = layout.place(ids(0))
    assert (placement.items == 0).sum() == 1
    assert (placement.leaves == 0).all()


def test_one_bin_for_each_item_places_the_whole_catalogue() -> None:
    layout = binned(items=30, tables=1, bins=30, capacity=40)
    assert layout.place(np.arange(30, dtype=np.int64)).truncated == 0


def test_binned_padding_reaches_every_position_of_short_and_full_bins() -> None:
    layout = binned(items=7, tables=1, bins=3)
    drawn = np.array([layout.place(ids(), seeded(seed)).leaves for seed in range(200)])
    assert [sorted(set(column.tolist())) for column in drawn.T] == [[0, 1, 2], [0, 1], [0, 1]]


def test_values_go_to_the_slots_of_their_items_and_padding_is_zero() -> None:
    placement = Placement(items=ids(7, PADDING, 3), leaves=ids(0, 1, 2), truncated=0)
    values = np.array([[3, 30], [7, 70]], dtype=np.uint32)
    arranged = placement.arrange(ids(3, 7), values)
    assert arranged.dtype == np.uint32
    assert arranged.tolist() == [[7, 70], [0, 0], [3, 30]]


def test_values_of_truncated_items_are_left_out() -> None:
    placement = Placement(items=ids(7, PADDING), leaves=ids(0, 1), truncated=1)
    assert placement.arrange(ids(5, 7), np.array([[5], [7]])).tolist() == [[7], [0]]


@pytest.mark.parametrize("item_ids", [ids(7, 5), ids(7, 7), ids(7, PADDING)], ids=["never asked", "twice", "padding"])
def test_values_for_other_items_are_refused(item_ids: Indices) -> None:
    placement = Placement(items=ids(7, PADDING), leaves=ids(0, 1), truncated=0)
    with pytest.raises(LayoutError):
        placement.arrange(item_ids, np.ones((2, 1)))


def test_rows_and_ids_must_be_equally_many() -> None:
    placement = Placement(items=ids(7, PADDING), leaves=ids(0, 1), truncated=0)
    with pytest.raises(LayoutError):
        placement.arrange(ids(7), np.ones((2, 1)))
    with pytest.raises(LayoutError):
        placement.collect(np.ones((3, 1)))


def unevenness(dropped: Indices) -> float:
    """Return by how many standard deviations the first half of the catalogue is dropped more often than the second."""
    half = dropped.size // 2
    return float((dropped[:half].sum() - dropped[half:].sum()) / np.sqrt(dropped.sum()))


def drops(layouts: list[BinnedLayout], *, in_order: bool) -> Indices:
    """Count how often each item is dropped when every device asks for the whole catalogue."""
    asked = np.arange(layouts[0].geometry.items, dtype=np.int64)
    counts = np.zeros_like(asked)
    for seed, layout in enumerate(layouts):
        if in_order:  # what `place` would do without its shuffle
            unmatched = maximum_matching(layout.locate(asked)[0], layout.geometry.slots) == UNMATCHED
            counts[unmatched] += 1
        else:
            counts[np.setdiff1d(asked, layout.place(asked, seeded(seed)).items)] += 1
    return counts


def test_items_without_a_place_do_not_favour_low_numbers() -> None:
    layouts = [binned(items=40, tables=2, bins=14, capacity=40, number=number) for number in range(300)]
    assert abs(unevenness(drops(layouts, in_order=False))) < 4
    assert abs(unevenness(drops(layouts, in_order=True))) > 10


@BOTH
def test_items_beyond_the_capacity_do_not_favour_low_numbers(layout: Layout) -> None:
    asked = np.arange(100, dtype=np.int64)
    placed = np.concatenate([layout.place(asked, seeded(seed)).items for seed in range(300)])
    counts = np.bincount(placed[placed != PADDING], minlength=100)
    assert abs(unevenness(counts)) < 4


def test_padding_of_a_huge_catalogue_does_not_list_it() -> None:
    drawn: list[int] = []

    def count_bytes(size: int) -> bytes:
        drawn.append(size)
        return secure_bytes(size)

    layout = DirectLayout(Geometry(items=2**31 - 1, tables=1, bins=1, slots_per_bin=20))
    placement = layout.place(np.arange(5, dtype=np.int64), count_bytes)
    assert sum(drawn) < 10_000
    assert np.unique(placement.leaves).size == 20
