"""What a server learns: one attack reads items and values from what it sees of others, and finds none in SecEmb."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from tests.unit.sessions import direct, make_round, make_task

from secemb_lab.paper.protocols import kvsagg, secaggmask, topksecagg
from secemb_lab.paper.protocols.secemb_view import view_of_secemb
from secemb_lab.paper.protocols.server_view import Leak, ServerView
from secemb_shared.dpf import RingArray
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices

ITEMS, WIDTH, OWN, USERS = 400, 8, 20, 6
LAYOUTS = {
    "direct": make_round(direct(items=ITEMS, capacity=OWN, row_width=WIDTH, dense_size=0)),
    "binned": make_round(make_task(items=ITEMS, capacity=OWN, row_width=WIDTH, dense_size=0, tables=4, bins=10)),
}


@dataclass(frozen=True)
class Fleet:
    """Users with their items and whole updates (items, width) in the ring."""

    items: list[Indices]
    updates: list[RingArray]

    @property
    def total(self) -> RingArray:
        total: RingArray = np.add.reduce(self.updates, axis=0, dtype=np.uint32)
        return total


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    rng = np.random.default_rng(5)
    items = [np.sort(rng.choice(ITEMS, OWN, replace=False)).astype(np.int64) for _ in range(USERS)]
    updates = []
    for some in items:
        update: RingArray = np.zeros((ITEMS, WIDTH), np.uint32)
        update[some] = rng.integers(-(2**18), 2**18, (OWN, WIDTH)).astype(np.int32).view(np.uint32)
        updates.append(update)
    return Fleet(items, updates)


View = Callable[[Fleet], ServerView]


def of_secaggmask(fleet: Fleet, *, covered: float = 0.6) -> ServerView:
    done = secaggmask.run([one.reshape(-1) for one in fleet.updates], covered=covered)
    return secaggmask.view(done.messages[0], items=ITEMS, width=WIDTH)


def of_topksecagg(fleet: Fleet) -> ServerView:
    return topksecagg.view(topksecagg.run(fleet.updates, fleet.items, threshold=4), 0, items=ITEMS)


def of_secemb(fleet: Fleet, *, round_: RoundSpec, party: int) -> ServerView:
    return view_of_secemb(round_, party, fleet.items[0], fleet.updates[0])


EACH_SECEMB = pytest.mark.parametrize(
    "view",
    [partial(of_secemb, round_=round_, party=party) for round_ in LAYOUTS.values() for party in (0, 1)],
    ids=[f"{name}-{party}" for name in LAYOUTS for party in (0, 1)],
)


def found(view: ServerView, fleet: Fleet) -> bool:
    return Leak.of(view, fleet.items[0]).found


def test_secaggmask_shows_items_to_its_server(fleet: Fleet) -> None:
    assert found(of_secaggmask(fleet), fleet)


def test_secaggmask_shows_values_to_its_server(fleet: Fleet) -> None:
    seen = of_secaggmask(fleet).values(fleet.updates[0])
    assert abs(seen / (OWN * WIDTH) - 0.4) < 5 * np.sqrt(0.24 / (OWN * WIDTH))  # what 60 % masked leaves


def test_topksecagg_shows_items_to_its_server(fleet: Fleet) -> None:
    leak = Leak.of(of_topksecagg(fleet), fleet.items[0])
    assert leak.recall == 1
    assert leak.precision == OWN / (OWN + 2)  # a tenth more, drawn at random


def test_topksecagg_hides_values_from_its_server(fleet: Fleet) -> None:
    assert of_topksecagg(fleet).values(fleet.updates[0]) == 0


@EACH_SECEMB
def test_secemb_hides_items_from_each_server(view: View, fleet: Fleet) -> None:
    assert not found(view(fleet), fleet)


@EACH_SECEMB
def test_secemb_hides_values_from_each_server(view: View, fleet: Fleet) -> None:
    assert view(fleet).values(fleet.updates[0]) == 0


@EACH_SECEMB
def test_the_same_attack_would_find_items_if_a_server_saw_the_update_in_clear(view: View, fleet: Fleet) -> None:
    seen = replace(view(fleet), rows=fleet.updates[0])
    assert found(seen, fleet)
    assert seen.values(fleet.updates[0]) > 0.9 * OWN * WIDTH


def test_masks_everywhere_would_hide_items_in_secaggmask_too(fleet: Fleet) -> None:
    assert not found(of_secaggmask(fleet, covered=1.0), fleet)


def test_kvsagg_shows_how_many_users_each_item_has(fleet: Fleet) -> None:
    """The sum alone, which is all that SecEmb's servers open, does not say that."""
    part = kvsagg.part_of(len(np.unique(np.concatenate(fleet.items))), expansion=3)
    rows = [update[some] for update, some in zip(fleet.updates, fleet.items, strict=True)]
    done = kvsagg.run(fleet.items, rows, part=part, salt=1, threshold=4)
    items, users = np.unique(np.concatenate(fleet.items), return_counts=True)
    assert done.read.users == dict(zip(items.tolist(), users.tolist(), strict=True))


def test_secaggmask_and_topksecagg_sum_exactly(fleet: Fleet) -> None:
    masked = secaggmask.run([one.reshape(-1) for one in fleet.updates])
    assert np.array_equal(masked.total.reshape(ITEMS, WIDTH), fleet.total)
    named = topksecagg.run(fleet.updates, fleet.items, threshold=4)
    assert np.array_equal(named.total, fleet.total[named.union])
