"""The planner: the paper's catalogues, the edges, and that a plan keeps its word."""

import numpy as np
import pytest

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label
from secemb_shared.layout import DEFAULT_LOSS, Plan, layout_for, loss_bound, plan

CATALOGUES = [
    # items, capacity, most slots, depth, most upload bytes (design.md, section 11)
    (1682, 200, 220, 5, 76_000),
    (3883, 300, 332, 6, 119_000),
    (10_681, 300, 336, 7, 126_000),
    (62_423, 500, 552, 9, 225_000),
    (93_386, 500, 552, 10, 234_000),
]


@pytest.mark.parametrize(("items", "capacity", "slots", "depth", "upload"), CATALOGUES)
def test_the_papers_catalogues_meet_the_design(items: int, capacity: int, slots: int, depth: int, upload: int) -> None:
    found = plan(items=items, capacity=capacity, row_width=65)
    assert found.geometry.slots <= slots
    assert found.geometry.depth == depth
    assert found.upload_bytes <= upload
    assert found.loss <= DEFAULT_LOSS


def by_hand(found: Plan, row_width: int, ring_bytes: int) -> int:
    geometry = found.geometry
    return -(-129 * geometry.depth * geometry.slots // 8) + geometry.slots * row_width * ring_bytes


@pytest.mark.parametrize(("ring_bits", "ring_bytes"), [(32, 4), (64, 8)])
def test_costs_are_those_of_the_wire(ring_bits: int, ring_bytes: int) -> None:
    found = plan(items=1682, capacity=50, row_width=17, ring_bits=ring_bits)
    assert found.upload_bytes == by_hand(found, 17, ring_bytes)
    assert found.download_bytes == found.geometry.slots * (17 + 1) * 4
    assert found.capacity == 50


@pytest.mark.parametrize("row_width", [1, 9, 65])
def test_no_cheaper_shape_keeps_the_bound(row_width: int) -> None:
    items, capacity, loss = 60, 10, 1e-3
    found = plan(items=items, capacity=capacity, row_width=row_width, loss=loss)
    cheapest = min(
        -(-129 * (-(-items // bins) - 1).bit_length() * tables * bins // 8) + tables * bins * row_width * 4
        for tables in range(1, 5)
        for bins in range(1, items + 1)
        if loss_bound(items=items, capacity=capacity, tables=tables, bins=bins) <= loss
    )
    assert found.upload_bytes == cheapest
    assert found.loss <= loss


def test_more_bins_are_taken_where_they_make_trees_shallower() -> None:
    found = plan(items=10_681, capacity=300, row_width=65)
    fewer = found.geometry.bins - 1
    assert loss_bound(items=10_681, capacity=300, tables=4, bins=fewer) <= DEFAULT_LOSS
    assert (-(-10_681 // fewer) - 1).bit_length() == found.geometry.depth + 1


@pytest.mark.parametrize(("items", "capacity"), [(1, 1), (1, 9), (10, 10), (10, 30), (1000, 990), (1000, 5000)])
def test_nearly_the_whole_catalogue_gets_a_bin_for_each_item(items: int, capacity: int) -> None:
    geometry = plan(items=items, capacity=capacity, row_width=65).geometry
    assert (geometry.tables, geometry.bins, geometry.depth) == (1, items, 0)


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_as_many_items_as_tables_need_one_bin_each(capacity: int) -> None:
    found = plan(items=100_000, capacity=capacity, row_width=65)
    assert found.geometry.slots == capacity
    assert found.loss == 0.0


@pytest.mark.parametrize(("items", "capacity"), [(1, 1), (1, 5), (2, 9), (50, 3), (300, 1), (300, 40), (300, 299)])
def test_every_plan_is_a_layout_that_places_a_full_set(items: int, capacity: int) -> None:
    found = plan(items=items, capacity=capacity, row_width=3)
    layout = layout_for(found.geometry, capacity=found.capacity, label=Label(bytes(32), 1))
    placement = layout.place(np.arange(found.capacity, dtype=np.int64))
    assert placement.truncated == 0


def test_without_any_chance_of_loss_there_is_still_a_plan() -> None:
    assert plan(items=300, capacity=20, row_width=5, loss=0.0).loss == 0.0


def test_a_huge_catalogue_and_a_large_capacity_can_be_planned() -> None:
    assert plan(items=9_267_503, capacity=100, row_width=65).geometry.slots <= 120
    assert plan(items=93_386, capacity=1000, row_width=65).geometry.slots <= 1120


@pytest.mark.parametrize(
    "wrong",
    [
        {"items": 0},
        {"capacity": 0},
        {"row_width": 0},
        {"ring_bits": 16},
        {"loss": 1.0},
        {"loss": -0.1},
        {"loss": float("nan")},
        {"max_tables": 0},
        {"max_tables": 256},
    ],
)
def test_impossible_wishes_are_refused(wrong: dict[str, float]) -> None:
    wishes: dict[str, float] = {"items": 100, "capacity": 10, "row_width": 5} | wrong
    with pytest.raises(LayoutError):
        plan(**wishes)  # type: ignore[arg-type]
