"""The public shape of a round."""

import numpy as np
import pytest

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label
from secemb_shared.layout import BinnedLayout, DirectLayout, Geometry, layout_for

LABEL = Label(bytes(32), 1)


def geometry(*, items: int = 10, tables: int = 2, bins: int = 4, slots_per_bin: int = 1) -> Geometry:
    return Geometry(items=items, tables=tables, bins=bins, slots_per_bin=slots_per_bin)


def test_slots_count_every_table_bin_and_slot() -> None:
    assert geometry(tables=3, bins=4, slots_per_bin=5).slots == 60


@pytest.mark.parametrize(
    ("items", "bins", "leaves", "depth"),
    [(1, 1, 1, 0), (10, 10, 1, 0), (10, 5, 2, 1), (10, 4, 3, 2), (10681, 84, 128, 7), (10681, 83, 129, 8)],
)
def test_depth_is_the_logarithm_of_the_fullest_bin(items: int, bins: int, leaves: int, depth: int) -> None:
    shape = geometry(items=items, bins=bins)
    assert (shape.leaves, shape.depth) == (leaves, depth)


def test_the_last_bins_are_one_position_short() -> None:
    assert geometry(items=10, tables=2, bins=4).leaves_by_slot().tolist() == [3, 3, 2, 2, 3, 3, 2, 2]


def test_all_slots_of_a_bin_have_its_size() -> None:
    assert geometry(items=5, tables=1, bins=2, slots_per_bin=2).leaves_by_slot().tolist() == [3, 3, 2, 2]


@pytest.mark.parametrize(
    "wrong",
    [{"items": 0}, {"items": 2**31}, {"tables": 0}, {"tables": 256}, {"bins": 0}, {"bins": 11}, {"slots_per_bin": 0}],
)
def test_impossible_shapes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        geometry(**wrong)


def test_the_shape_decides_which_layout_a_round_has() -> None:
    assert isinstance(layout_for(geometry(), capacity=3, label=LABEL), BinnedLayout)
    paper = geometry(tables=1, bins=1, slots_per_bin=3)
    assert isinstance(layout_for(paper, capacity=3, label=LABEL), DirectLayout)


def test_a_layout_refuses_a_shape_that_is_not_its_own() -> None:
    with pytest.raises(LayoutError):
        DirectLayout(geometry())
    with pytest.raises(LayoutError):
        BinnedLayout(geometry(slots_per_bin=2), capacity=3, label=LABEL)
    with pytest.raises(LayoutError):
        layout_for(geometry(tables=1, bins=1, slots_per_bin=3), capacity=4, label=LABEL)
    with pytest.raises(LayoutError):
        layout_for(geometry(), capacity=0, label=LABEL)


def test_order_of_the_direct_layout_is_the_catalogue() -> None:
    order = DirectLayout(geometry(tables=1, bins=1, slots_per_bin=3)).order()
    assert order.dtype == np.int32
    assert order.tolist() == [list(range(10))]


def test_order_of_a_table_holds_every_item_once_and_marks_short_bins() -> None:
    shape = geometry(items=10, tables=2, bins=4)
    order = BinnedLayout(shape, capacity=3, label=LABEL).order()
    assert order.dtype == np.int32
    assert order.shape == (8, 3)
    for table in (order[:4], order[4:]):
        assert sorted(table.ravel().tolist()) == [-1, -1, *range(10)]
    assert ((order >= 0).sum(axis=1) == shape.leaves_by_slot()).all()


def test_tables_and_rounds_deal_differently() -> None:
    shape = geometry(items=100, tables=2, bins=4)
    order = BinnedLayout(shape, capacity=3, label=LABEL).order()
    other = BinnedLayout(shape, capacity=3, label=Label(bytes(32), 2)).order()
    assert not np.array_equal(order[:4], order[4:])
    assert not np.array_equal(order, other)
