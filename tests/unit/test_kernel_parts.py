"""However the work is cut into parts and shared by threads, the result is the same and nothing is done twice."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.sessions import Engine, leaf_table, random_keys, random_ring, rng_of

from secemb_shared.dpf import HeldKeys, LeafTable
from secemb_shared.dpf._native import _conflict_free, _slot_parts
from secemb_shared.dpf._portable import Portable
from secemb_shared.kernel import instruction_sets, native_available
from secemb_shared.layout import Geometry

if native_available():
    from secemb_shared import _kernel

SESSIONS, WIDTH = 2, 5
GEOMETRIES = [
    Geometry(items=items, tables=tables, bins=bins, slots_per_bin=slots_per_bin)
    for items, tables, bins, slots_per_bin in [
        (1, 1, 1, 1),
        (700, 1, 1, 5),
        (100, 3, 17, 1),
        (50, 2, 9, 3),
        (1500, 2, 4, 1),
        (256, 2, 1, 2),
        (64, 4, 64, 1),
    ]
]


def cells(geometry: Geometry, part: tuple[int, int, int, int]) -> Iterator[tuple[int, int]]:
    slot_from, slot_to, leaf_from, leaf_to = part
    return ((slot, leaf) for slot in range(slot_from, slot_to) for leaf in range(leaf_from, leaf_to))


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_parts_cover_every_leaf_of_every_slot_once(geometry: Geometry, threads: int) -> None:
    everything = sorted(cells(geometry, (0, geometry.slots, 0, geometry.leaves)))
    batches = list(_conflict_free(geometry, threads))
    assert sorted(cell for batch in batches for part in batch for cell in cells(geometry, part)) == everything
    assert sorted(cell for part in _slot_parts(geometry, threads) for cell in cells(geometry, part)) == everything
    assert max(map(len, batches)) <= threads


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_parts_that_run_together_touch_different_items(geometry: Geometry, threads: int) -> None:
    order = leaf_table(geometry, rng_of(1)).order
    for batch in _conflict_free(geometry, threads):
        touched = []
        for slot_from, slot_to, leaf_from, leaf_to in batch:
            bins = {slot // geometry.slots_per_bin for slot in range(slot_from, slot_to)}
            items = np.unique(order[sorted(bins), leaf_from:leaf_to])
            touched += items[items >= 0].tolist()
        assert len(touched) == len(set(touched))


def cuts(end: int, step: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Cut [0, end) anywhere at multiples of `step`."""
    inside = [at for at in range(step, end, step) if rng.integers(0, 2)]
    return list(pairwise([0, *inside, end]))


def in_parts(held: HeldKeys, table: LeafTable, seed: int) -> None:
    """Compare a random cut of the work with the definition, at the kernel itself."""
    rng, geometry = rng_of(seed), table.geometry
    rows = random_ring(rng, (geometry.items, WIDTH), 32)
    words = random_ring(rng, (SESSIONS, geometry.slots, WIDTH), 32)
    answers = np.zeros((SESSIONS, geometry.slots, WIDTH), dtype=np.uint32)
    sums, slot_sums = np.zeros((geometry.items, WIDTH), dtype=np.uint32), np.zeros_like(words)
    keys = (held.party, held.keys, held.roots, held.left, held.right, SESSIONS, geometry.slots, geometry.depth)
    leaves = (table.order, geometry.leaves, geometry.slots_per_bin, geometry.items)
    for slots in cuts(geometry.slots, 1, rng):
        for some in cuts(geometry.leaves, 256, rng):
            _kernel.answer(keys, leaves, (*slots, *some), rows, WIDTH, answers)
            _kernel.accumulate(keys, leaves, (*slots, *some), words, WIDTH, 4, sums, slot_sums)
    expected = np.zeros_like(sums)
    Portable().accumulate(held, table, words, expected)
    assert np.array_equal(answers, Portable().answer(held, table, rows))
    assert np.array_equal(sums, expected)
    assert np.array_equal(slot_sums, Portable().slot_sums(held, geometry.leaves, words))


def test_any_cut_of_the_work_gives_the_same_result() -> None:
    for name in instruction_sets():
        with Engine(name).running():
            for seed, geometry in enumerate(GEOMETRIES):
                held = random_keys(geometry, SESSIONS, seed % 2, rng_of(seed))
                in_parts(held, leaf_table(geometry, rng_of(seed)), seed)


def test_no_work_at_all_changes_nothing() -> None:
    for name in instruction_sets():
        with Engine(name).running():
            table = leaf_table(GEOMETRIES[1], rng_of(0))
            geometry = table.geometry
            held = random_keys(geometry, 1, 0, rng_of(0))
            sums = np.zeros((geometry.items, WIDTH), dtype=np.uint32)
            words = np.ones((1, geometry.slots, WIDTH), dtype=np.uint32)
            keys = (0, held.keys, held.roots, held.left, held.right, 1, geometry.slots, geometry.depth)
            leaves = (table.order, geometry.leaves, geometry.slots_per_bin, geometry.items)
            for part in ((2, 2, 0, geometry.leaves), (0, geometry.slots, 256, 256)):
                _kernel.accumulate(keys, leaves, part, words, WIDTH, 4, sums)
            assert not sums.any()
