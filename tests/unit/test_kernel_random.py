"""Every backend computes the same on shapes that nobody picked."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.unit.sessions import ENGINES, leaf_table, random_keys, random_ring, rng_of

from secemb_shared.dpf import Backend
from secemb_shared.dpf._portable import Portable
from secemb_shared.layout import Geometry

PORTABLE = Portable()


@pytest.fixture(params=ENGINES, ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with request.param.running() as backend:
        yield backend


def random_geometry(rng: np.random.Generator) -> Geometry:
    items = int(rng.choice([1, 2, 5, 30, 257, 700]))
    bins = int(rng.integers(1, min(items, 20) + 1))
    return Geometry(items=items, tables=int(rng.integers(1, 4)), bins=bins, slots_per_bin=int(rng.integers(1, 4)))


@pytest.mark.parametrize("seed", range(25))
def test_answers_and_sums_agree(backend: Backend, seed: int) -> None:
    rng = rng_of(seed)
    geometry, sessions, width = random_geometry(rng), int(rng.integers(1, 4)), int(rng.integers(1, 70))
    held = random_keys(geometry, sessions, int(rng.integers(0, 2)), rng)
    table, bits = leaf_table(geometry, rng), int(rng.choice([32, 64]))
    rows = random_ring(rng, (geometry.items, width), 32)
    words = random_ring(rng, (sessions, geometry.slots, width), bits)
    sums = [random_ring(rng_of(seed), (geometry.items, width), bits) for _ in range(2)]
    assert np.array_equal(backend.answer(held, table, rows), PORTABLE.answer(held, table, rows))
    backend.accumulate(held, table, words, sums[0])
    PORTABLE.accumulate(held, table, words, sums[1])
    assert np.array_equal(sums[0], sums[1])
