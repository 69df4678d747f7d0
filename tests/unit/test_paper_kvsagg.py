"""Kvsagg: what can be read is the exact sum, and how often nothing can be read is what the theory says."""

import numpy as np
import pytest

from secemb_lab.paper.protocols import kvsagg
from secemb_shared.dpf import RingArray

WIDTH = 2


def a_table(items: int, part: int, salt: int) -> tuple[RingArray, RingArray]:
    rng = np.random.default_rng(salt)
    chosen = rng.choice(10_000, items, replace=False).astype(np.int64)
    rows = rng.integers(0, 2**32, (items, WIDTH), dtype=np.uint32)
    whole: RingArray = np.zeros((10_000, WIDTH), np.uint32)
    whole[chosen] = rows
    return kvsagg.encode(chosen, rows, part=part, salt=salt), whole


def test_kvsagg_reads_the_exact_sum_of_several_users() -> None:
    rng = np.random.default_rng(3)
    items = [rng.choice(300, 30, replace=False).astype(np.int64) for _ in range(5)]
    rows = [rng.integers(0, 2**32, (30, WIDTH), dtype=np.uint32) for _ in range(5)]
    expected: RingArray = np.zeros((300, WIDTH), np.uint32)
    for some, own in zip(items, rows, strict=True):
        expected[some] += own
    done = kvsagg.run(items, rows, part=200, salt=9, threshold=3)
    assert not done.read.failed
    assert sorted(done.read.rows) == np.unique(np.concatenate(items)).tolist()
    assert all(np.array_equal(row, expected[item]) for item, row in done.read.rows.items())


def test_kvsagg_fails_as_often_as_the_theory_says() -> None:
    items, part, tables = 20, 15, 1200
    failed = sum(
        kvsagg.read(a_table(items, part, salt)[0], part=part, salt=salt, width=WIDTH).failed for salt in range(tables)
    )
    expected = kvsagg.failure_rate(items, part)
    assert abs(failed / tables - expected) < 4 * np.sqrt(expected * (1 - expected) / tables)
    assert expected > 0.02  # so that a rate of zero would not pass


def test_a_table_that_failed_says_so_and_what_it_read_is_right() -> None:
    seen = 0
    for salt in range(200):
        table, whole = a_table(30, 12, salt)
        done = kvsagg.read(table, part=12, salt=salt, width=WIDTH)
        assert all(np.array_equal(row, whole[item]) for item, row in done.rows.items())
        assert done.failed == (len(done.rows) < 30)
        seen += done.failed
    assert seen > 10


@pytest.mark.parametrize("items", [1200, 2500])
def test_a_table_of_the_size_in_the_report_can_be_read(items: int) -> None:
    part = kvsagg.part_of(items)
    assert not kvsagg.read(a_table(items, part, 1)[0], part=part, salt=1, width=WIDTH).failed
