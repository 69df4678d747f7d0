"""Sums of private vectors: shares add up, and the party with the seed sees nothing of the value."""

import math

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import EACH_BACKEND, random_ring, rng_of

from secemb_shared import secure_sum
from secemb_shared.dpf import Backend
from secemb_shared.errors import OutOfRangeError, OverflowBudgetError
from secemb_shared.messages.spec import LARGEST_SUM
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

KEY = b"sixteen byte key"
RINGS = pytest.mark.parametrize("bits", [32, 64])


@EACH_BACKEND
@RINGS
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1000])
def test_the_two_shares_add_up(backend: Backend, bits: int, count: int) -> None:
    values = random_ring(rng_of(count), count, bits)
    sums = secure_sum.hide(KEY, values, backend)
    secure_sum.add_seeded(KEY, sums, backend)
    assert np.array_equal(sums, values)


@EACH_BACKEND
@RINGS
def test_hiding_leaves_the_values_alone(backend: Backend, bits: int) -> None:
    values = random_ring(rng_of(1), 50, bits)
    before = values.copy()
    share = secure_sum.hide(KEY, values, backend)
    assert np.array_equal(values, before)
    assert share.dtype == values.dtype
    assert not (share == values).any()


@EACH_BACKEND
@RINGS
def test_many_sessions_add_up(backend: Backend, bits: int) -> None:
    rng = rng_of(2)
    values = random_ring(rng, (20, 33), bits)
    keys = [rng.bytes(16) for _ in values]
    explicit, seeded = np.zeros_like(values[0]), np.zeros_like(values[0])
    for key, value in zip(keys, values, strict=True):
        explicit += secure_sum.hide(key, value, backend)
        secure_sum.add_seeded(key, seeded, backend)
    assert np.array_equal(explicit + seeded, values.sum(axis=0, dtype=values.dtype))


@EACH_BACKEND
@RINGS
def test_the_seeded_share_is_the_stream_whatever_the_value(backend: Backend, bits: int) -> None:
    share = np.zeros(37, dtype=np.uint32 if bits == 32 else np.uint64)
    secure_sum.add_seeded(KEY, share, backend)
    assert share.tolist() == reference.stream(KEY, 37, bits)


@EACH_BACKEND
@RINGS
def test_the_explicit_share_is_the_value_moved_by_the_stream(backend: Backend, bits: int) -> None:
    """Two values shift the same uniform pad, so the share alone is uniform for each of them."""
    one, other = random_ring(rng_of(3), (2, 37), bits)
    shares = [secure_sum.hide(KEY, value, backend) for value in (one, other)]
    assert np.array_equal(shares[0] - shares[1], one - other)
    assert (one - shares[0]).tolist() == reference.stream(KEY, 37, bits)


@RINGS
def test_the_explicit_share_is_even_over_the_ring_whatever_the_value(bits: int) -> None:
    rng = rng_of(4)
    dtype = np.uint32 if bits == 32 else np.uint64
    for value in (np.zeros(8, dtype=dtype), np.full(8, 12345, dtype=dtype)):
        shares = np.array([secure_sum.hide(rng.bytes(16), value) for _ in range(2000)])
        ones = np.unpackbits(shares.view(np.uint8), axis=1).mean(axis=0)
        assert np.abs(ones - 0.5).max() < 6 * 0.5 / np.sqrt(2000)


@EACH_BACKEND
def test_shapes_are_kept(backend: Backend) -> None:
    values = random_ring(rng_of(5), (4, 7), 32)
    share = secure_sum.hide(KEY, values, backend)
    assert share.shape == values.shape
    secure_sum.add_seeded(KEY, share, backend)
    assert np.array_equal(share, values)


def test_two_keys_give_two_shares() -> None:
    values = random_ring(rng_of(6), 100, 32)
    assert not (secure_sum.hide(KEY, values) == secure_sum.hide(bytes(16), values)).any()


def test_the_largest_secure_sum_is_just_within_the_budget_of_its_ring() -> None:
    SUM_RING.check_budget(cohort=LARGEST_SUM, bound=SUM_BOUND)
    with pytest.raises(OverflowBudgetError):
        SUM_RING.check_budget(cohort=LARGEST_SUM + 1, bound=SUM_BOUND)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_secure_sum_does_not_wrap_around(sign: int) -> None:
    largest = SUM_RING.encode(np.array([sign * 2.0**24]), bound=SUM_BOUND)
    assert SUM_RING.decode(largest * np.uint64(LARGEST_SUM)) == sign * 2.0**24 * LARGEST_SUM
    assert SUM_RING.decode(largest * np.uint64(LARGEST_SUM + 1)) == -(2.0**47)  # for +: the sign has turned
    with pytest.raises(OutOfRangeError):
        SUM_RING.encode(np.array([sign * (2.0**24 + 2.0**-16)]), bound=SUM_BOUND)


def test_counts_are_exact_and_measures_are_good_to_half_a_step_each_in_a_secure_sum() -> None:
    rng = rng_of(7)
    counts, measures = rng.integers(0, 10_000, 1000).astype(np.float64), rng.uniform(-100, 100, 1000)
    totals = [SUM_RING.decode(SUM_RING.encode(values, bound=SUM_BOUND).sum()) for values in (counts, measures)]
    assert float(totals[0]) == math.fsum(counts)
    assert abs(float(totals[1]) - math.fsum(measures)) <= 1000 * 2.0**-17
