"""What holds for every placement, whatever the catalogue, the layout and the device's items."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from secemb_shared.labels import Label
from secemb_shared.layout import PADDING, Geometry, Layout, Placement, layout_for
from secemb_shared.randomness import Indices


@dataclass(frozen=True)
class Case:
    """A layout, what a device asked for, and what it got."""

    layout: Layout
    asked: Indices
    placement: Placement


@st.composite
def geometries(draw: st.DrawFn) -> tuple[Geometry, int]:
    """Draw a geometry and its capacity: direct, or binned from far too few slots to more than enough."""
    items, capacity = draw(st.integers(1, 250)), draw(st.integers(1, 60))
    if draw(st.booleans()):
        return Geometry(items=items, tables=1, bins=1, slots_per_bin=capacity), capacity
    tables, bins = draw(st.integers(2, 5)), draw(st.integers(1, min(items, 40)))
    return Geometry(items=items, tables=tables, bins=bins, slots_per_bin=1), capacity


@st.composite
def cases(draw: st.DrawFn) -> Case:
    geometry, capacity = draw(geometries())
    layout = layout_for(geometry, capacity=capacity, label=Label(bytes(32), draw(st.integers(0, 1000))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    asked = rng.permutation(geometry.items)[: draw(st.integers(0, geometry.items))]
    return Case(layout, asked, layout.place(asked, rng.bytes))


@given(cases())
def test_every_slot_points_at_a_position_that_exists(case: Case) -> None:
    assert (case.placement.leaves >= 0).all()
    assert (case.placement.leaves < case.layout.geometry.leaves_by_slot()).all()


@given(cases())
def test_every_placed_item_sits_at_its_leaf_in_one_of_its_bins(case: Case) -> None:
    geometry, placement = case.layout.geometry, case.placement
    slots = np.flatnonzero(placement.items != PADDING)
    bins = slots // geometry.slots_per_bin
    assert np.array_equal(case.layout.order()[bins, placement.leaves[slots]], placement.items[slots])
    homes, _ = case.layout.locate(placement.items[slots])
    assert (homes // geometry.slots_per_bin == bins[:, None]).any(axis=1).all()


@given(cases())
def test_locate_and_order_agree(case: Case) -> None:
    slots, leaves = case.layout.locate(case.asked)
    assert slots.shape == leaves.shape == (case.asked.size, case.layout.geometry.tables)
    found = case.layout.order()[slots // case.layout.geometry.slots_per_bin, leaves]
    assert (found == case.asked[:, None]).all()


@given(cases())
def test_placed_and_truncated_items_are_those_asked_for(case: Case) -> None:
    placed = case.placement.items[case.placement.items != PADDING]
    assert np.unique(placed).size == placed.size
    assert np.isin(placed, case.asked).all()
    assert placed.size + case.placement.truncated == case.asked.size


@given(cases())
def test_as_many_are_placed_as_scipy_could(case: Case) -> None:
    geometry = case.layout.geometry
    if geometry.is_direct or case.asked.size > case.layout.capacity:
        most = min(case.asked.size, case.layout.capacity)
        assert case.asked.size - case.placement.truncated <= most
        return
    slots, _ = case.layout.locate(case.asked)
    rows = np.repeat(np.arange(len(slots)), geometry.tables)
    graph = csr_array((np.ones(slots.size), (rows, slots.ravel())), shape=(len(slots), geometry.slots))
    served = np.count_nonzero(maximum_bipartite_matching(graph, perm_type="column") >= 0)
    assert case.asked.size - case.placement.truncated == served


@given(cases(), st.integers(1, 5))
@settings(max_examples=50)
def test_what_is_arranged_can_be_collected(case: Case, width: int) -> None:
    values = np.arange(1, case.asked.size * width + 1, dtype=np.float32).reshape(-1, width)
    arranged = case.placement.arrange(case.asked, values)
    assert not arranged[case.placement.items == PADDING].any()
    items, rows = case.placement.collect(arranged)
    where = {int(item): number for number, item in enumerate(case.asked)}
    assert np.array_equal(rows, values[[where[int(item)] for item in items]])


@given(cases())
def test_the_direct_layout_places_all_it_has_room_for(case: Case) -> None:
    if case.layout.geometry.is_direct:
        assert case.placement.truncated == max(0, case.asked.size - case.layout.capacity)
