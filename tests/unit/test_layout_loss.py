"""The loss bound against exact enumeration and against simulation with the real permutation."""

from collections import Counter
from itertools import permutations, product
from math import comb, prod, sqrt

import numpy as np
import pytest

from secemb_shared.labels import Label
from secemb_shared.layout import BinnedLayout, Geometry, loss_bound
from secemb_shared.layout import loss as loss_module
from secemb_shared.layout.loss import Crowding
from secemb_shared.layout.placement import UNMATCHED, maximum_matching


def exact_loss(items: int, chosen: int, tables: int, bins: int) -> float:
    """Enumerate every deal of the chosen items in every table."""
    deals = Counter(tuple(place % bins for place in places) for places in permutations(range(items), chosen))
    lost = 0
    for deal in product(deals, repeat=tables):
        choices = np.array(deal, dtype=np.int64).T + np.arange(tables) * bins
        if (maximum_matching(choices, tables * bins) == UNMATCHED).any():
            lost += prod(deals[table] for table in deal)
    return float(lost / deals.total() ** tables)


EXACT_CASES = [
    (4, 2, 1, 2),
    (5, 3, 1, 4),
    (4, 3, 2, 2),
    (5, 3, 2, 2),
    (4, 4, 2, 2),
    (6, 4, 2, 2),
    (9, 4, 2, 2),
    (7, 4, 2, 3),
    (8, 4, 2, 3),
    (7, 5, 3, 2),
]


@pytest.mark.parametrize(("items", "chosen", "tables", "bins"), EXACT_CASES)
def test_the_bound_is_above_the_exact_loss_and_close(items: int, chosen: int, tables: int, bins: int) -> None:
    exact = exact_loss(items, chosen, tables, bins)
    bound = loss_bound(items=items, capacity=chosen, tables=tables, bins=bins)
    assert exact <= bound <= 1.5 * exact


@pytest.mark.parametrize(("items", "chosen", "tables", "bins"), EXACT_CASES)
def test_the_quick_form_is_above_the_sharp_one(
    items: int, chosen: int, tables: int, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharp = loss_bound(items=items, capacity=chosen, tables=tables, bins=bins)
    monkeypatch.setattr(loss_module, "MOST_EXACT", 0)
    assert loss_bound(items=items, capacity=chosen, tables=tables, bins=bins) >= sharp


@pytest.mark.parametrize(("items", "bins", "size"), [(8, 2, 5), (9, 3, 6), (7, 3, 4), (10, 4, 6), (11, 4, 7)])
def test_crowding_bounds_the_share_of_crowded_draws(items: int, bins: int, size: int) -> None:
    counted: Counter[int] = Counter()
    for places in product([False, True], repeat=items):
        loads = np.bincount(np.flatnonzero(places) % bins, minlength=bins)
        if loads.sum() == size and (loads != 1).all():
            counted[int(np.count_nonzero(loads))] += 1
    chances = np.exp(Crowding(items=items, bins=bins, most=size, typical_load=2.1, exact=True).log_chances(size))
    for used, chance in enumerate(chances):
        assert counted[used] / comb(items, size) <= chance * (1 + 1e-9)
        if items % bins == 0:
            assert chance == pytest.approx(counted[used] / comb(items, size))


def share_lost(items: int, capacity: int, tables: int, bins: int, *, rounds: int, sets: int) -> float:
    """Return the share of random full sets that do not fit, over several rounds' keys."""
    rng = np.random.default_rng(2024)
    geometry = Geometry(items=items, tables=tables, bins=bins, slots_per_bin=1)
    lost = 0
    for number in range(rounds):
        layout = BinnedLayout(geometry, capacity=capacity, label=Label(b"simulated round ".ljust(32), number))
        for _ in range(sets):
            slots, _ = layout.locate(rng.choice(items, capacity, replace=False, shuffle=False))
            lost += bool((maximum_matching(slots, geometry.slots) == UNMATCHED).any())
    return lost / (rounds * sets)


@pytest.mark.parametrize(
    ("items", "capacity", "tables", "bins"),
    [(300, 20, 2, 20), (300, 20, 2, 28), (1000, 20, 3, 8), (60, 20, 3, 8), (400, 40, 4, 11), (200, 30, 1, 150)],
)
def test_where_losses_are_common_the_bound_is_above_what_is_measured(
    items: int, capacity: int, tables: int, bins: int
) -> None:
    bound = loss_bound(items=items, capacity=capacity, tables=tables, bins=bins)
    measured = share_lost(items, capacity, tables, bins, rounds=100, sets=20)
    assert measured <= bound + 3 * sqrt(bound / 2000)


def test_the_bound_is_not_far_above_what_is_measured() -> None:
    bound = loss_bound(items=300, capacity=20, tables=2, bins=20)
    assert bound < 2 * share_lost(300, 20, 2, 20, rounds=100, sets=20)


@pytest.mark.parametrize(
    ("items", "capacity", "bins"),
    [(1682, 200, 55), (3883, 300, 82), (10_681, 300, 84), (62_423, 500, 137), (93_386, 500, 137)],
)
def test_the_planned_catalogues_lose_nothing_in_simulation(items: int, capacity: int, bins: int) -> None:
    assert share_lost(items, capacity, 4, bins, rounds=10, sets=30) == 0


def test_the_same_simulation_notices_too_few_bins() -> None:
    assert share_lost(1682, 200, 4, 51, rounds=10, sets=10) > 0.1


def test_too_few_slots_lose_for_sure_and_single_items_never() -> None:
    assert loss_bound(items=100, capacity=20, tables=2, bins=9) == 1.0
    assert loss_bound(items=100, capacity=20, tables=1, bins=100) == 0.0
    assert loss_bound(items=100, capacity=4, tables=4, bins=1) == 0.0


def test_a_capacity_beyond_the_catalogue_counts_as_the_catalogue() -> None:
    shape = {"items": 40, "tables": 3, "bins": 20}
    assert loss_bound(capacity=400, **shape) == loss_bound(capacity=40, **shape)


def test_more_bins_lose_less() -> None:
    bounds = [loss_bound(items=4000, capacity=50, tables=4, bins=bins) for bins in range(14, 24)]
    assert bounds == sorted(bounds, reverse=True)
