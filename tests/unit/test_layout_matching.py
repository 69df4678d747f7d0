"""Maximum bipartite matching."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from secemb_shared.layout.placement import UNMATCHED, maximum_matching
from secemb_shared.randomness import Indices


def size_by_scipy(choices: Indices, slots: int) -> int:
    rows = np.repeat(np.arange(len(choices)), choices.shape[1])
    graph = csr_array((np.ones(choices.size), (rows, choices.ravel())), shape=(len(choices), slots))
    return int(np.count_nonzero(maximum_bipartite_matching(graph, perm_type="column") >= 0))


def random_choices(items: int, tables: int, bins: int, seed: int) -> Indices:
    rng = np.random.default_rng(seed)
    return rng.integers(0, bins, (items, tables)) + np.arange(tables) * bins


def check(choices: Indices, slots: int) -> None:
    matching = maximum_matching(choices, slots)
    matched = matching[matching != UNMATCHED]
    assert np.unique(matched).size == matched.size
    assert (choices == matching[:, None]).any(axis=1)[matching != UNMATCHED].all()
    assert matched.size == size_by_scipy(choices, slots)


@pytest.mark.parametrize(
    ("items", "tables", "bins"),
    [(1, 1, 1), (5, 1, 3), (20, 2, 8), (50, 3, 15), (100, 4, 20), (200, 4, 50), (300, 4, 76), (500, 4, 128)],
)
def test_it_serves_as_many_as_scipy(items: int, tables: int, bins: int) -> None:
    for seed in range(20):
        check(random_choices(items, tables, bins, seed), tables * bins)


def test_it_finds_a_long_chain_of_moves() -> None:
    chain = np.array([[n, n + 1] for n in range(50)] + [[0, 0]], dtype=np.int64)
    assert (maximum_matching(chain, 51) != UNMATCHED).all()


def test_it_leaves_out_only_who_cannot_be_served() -> None:
    choices = np.array([[0, 1]] * 4 + [[2, 3]], dtype=np.int64)
    assert np.count_nonzero(maximum_matching(choices, 4) == UNMATCHED) == 2
    assert maximum_matching(choices, 4)[4] in (2, 3)


def test_nobody_is_easily_served() -> None:
    assert maximum_matching(np.empty((0, 4), dtype=np.int64), 8).size == 0
