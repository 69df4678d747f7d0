"""Fixed-point numbers: what the ring holds, what it refuses, and why a whole cohort must fit."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from secemb_shared.errors import NotFiniteError, OutOfRangeError, OverflowBudgetError, RingError, SecEmbError
from secemb_shared.ring import Ring

RINGS = [Ring(32, 16), Ring(64, 32), Ring(32, 0), Ring(64, 0), Ring(32, 30), Ring(64, 62)]
EACH_RING = pytest.mark.parametrize("ring", RINGS, ids=str)
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def border(ring: Ring, dtype: npt.DTypeLike) -> tuple[float, float, float, float]:
    """Return the last numbers of the type that fit and the first that do not: −beyond, −last, last, beyond."""
    half, unit = 2.0 ** (ring.bits - 1 - ring.fraction_bits), 2.0**-ring.fraction_bits
    values = np.array([half], dtype=dtype)
    below, above = float(np.nextafter(values, -values)[0]), float(np.nextafter(values, 2 * values)[0])
    return -max(above, half + unit), -half, min(below, half - unit), half


def test_elements_from_half_up_are_negative() -> None:
    elements = np.array([0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1], dtype=np.uint32)
    assert Ring(32, 0).decode(elements).tolist() == [0, 1, 2**31 - 1, -(2**31), -(2**31) + 1, -1]
    elements64 = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert Ring(64, 0).decode(elements64).tolist() == [0, 1, -(2.0**63), -1]


def test_negative_numbers_are_two_s_complement() -> None:
    assert Ring(32, 16).encode([-1.0, -0.5, -(2.0**-16), -0.0]).tolist() == [2**32 - 2**16, 2**32 - 2**15, 2**32 - 1, 0]
    assert Ring(64, 32).encode([-1.0]).tolist() == [2**64 - 2**32]


@EACH_RING
@FLOATS
def test_a_number_comes_back_within_half_a_step(ring: Ring, dtype: npt.DTypeLike) -> None:
    _, lowest, highest, _ = border(ring, dtype)
    values = np.random.default_rng(1).uniform(lowest / 2, highest / 2, 2000).astype(dtype)
    step = Fraction(1, 2**ring.fraction_bits)
    signed = ring.encode(values).view(f"i{ring.element_bytes}").tolist()
    assert all(abs(n * step - Fraction(float(x))) <= step / 2 for n, x in zip(signed, values, strict=True))


@pytest.mark.parametrize("ring", [Ring(32, 16), Ring(64, 20)], ids=str)
def test_what_the_ring_holds_exactly_comes_back_exactly(ring: Ring) -> None:
    values = np.random.default_rng(2).integers(-(2**30), 2**30, 2000) / 2.0**ring.fraction_bits
    assert np.array_equal(ring.decode(ring.encode(values)), values)


def test_halves_go_to_the_even_neighbour_on_both_sides() -> None:
    assert Ring(32, 0).encode([0.5, 1.5, 2.5, -0.5, -1.5]).view(np.int32).tolist() == [0, 2, 2, 0, -2]


def test_encoding_adds_up() -> None:
    ring = Ring(32, 16)
    some, others = ring.encode([1.5, -2.25, 100.0]), ring.encode([-3.5, 2.25, -200.5])
    assert ring.decode(some + others).tolist() == [-2.0, 0.0, -100.5]


@EACH_RING
@FLOATS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(ring: Ring, dtype: npt.DTypeLike, value: float) -> None:
    for values in ([value], [0.0, value, 0.25], [value, 1e30]):
        with pytest.raises(NotFiniteError):
            ring.encode(np.array(values, dtype=dtype))


@EACH_RING
@FLOATS
def test_the_ring_ends_exactly_where_it_should(ring: Ring, dtype: npt.DTypeLike) -> None:
    below, lowest, highest, above = border(ring, dtype)
    fits = np.array([lowest, highest], dtype=dtype)
    signed = [int(Fraction(float(x)) * 2**ring.fraction_bits) for x in fits]
    assert ring.encode(fits).view(f"i{ring.element_bytes}").tolist() == signed
    assert signed[0] == -ring.half
    for beyond in (below, above, 2 * below, 2 * above):
        with pytest.raises(OutOfRangeError):
            ring.encode(np.array([0, beyond], dtype=dtype))


def test_the_last_half_step_is_rounded_before_it_is_judged() -> None:
    ring = Ring(32, 16)
    steps = np.array([2**31 - 1, 2**31 - 0.75, -(2**31) - 0.5]) / 2**16
    assert ring.encode(steps).tolist() == [2**31 - 1, 2**31 - 1, 2**31]
    for beyond in (2**31 - 0.5, -(2**31) - 0.75):
        with pytest.raises(OutOfRangeError):
            ring.encode([beyond / 2**16])


@FLOATS
def test_the_largest_floats_are_out_of_range_and_no_warning(dtype: npt.DTypeLike) -> None:
    for ring in RINGS:
        for value in (np.finfo(dtype).max, np.finfo(dtype).min):
            with pytest.raises(OutOfRangeError):
                ring.encode(np.array([value], dtype=dtype))


@EACH_RING
@FLOATS
def test_the_smallest_floats_become_zero(ring: Ring, dtype: npt.DTypeLike) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    assert ring.encode(np.array([tiny, -tiny, -0.0], dtype=dtype)).tolist() == [0, 0, 0]


@EACH_RING
def test_nothing_encodes_to_nothing(ring: Ring) -> None:
    for shape in ((0,), (0, 5), (3, 0)):
        encoded = ring.encode(np.empty(shape), bound=1)
        assert encoded.shape == shape
        assert encoded.dtype == ring.dtype
        assert ring.decode(encoded).shape == shape


def test_whole_numbers_and_lists_are_numbers_too() -> None:
    assert Ring(32, 4).encode([1, -2]).tolist() == [16, 2**32 - 32]
    assert Ring(32, 4).encode(np.array([[3]], dtype=np.int8)).tolist() == [[48]]


@FLOATS
def test_the_bound_counts_in_units_on_both_sides(dtype: npt.DTypeLike) -> None:
    for ring in (Ring(32, 16), Ring(64, 16)):
        unit = 2.0**-16
        inside = np.array([100 * unit, -100 * unit], dtype=dtype)
        assert ring.encode(inside, bound=100).view(f"i{ring.element_bytes}").tolist() == [100, -100]
        for beyond in (101 * unit, -101 * unit):
            with pytest.raises(OutOfRangeError):
                ring.encode(np.array([0, beyond], dtype=dtype), bound=100)


@FLOATS
@pytest.mark.parametrize("bits", [32, 64])
def test_a_bound_that_float32_cannot_hold_is_kept_exactly(dtype: npt.DTypeLike, bits: int) -> None:
    ring, bound = Ring(bits, 0), 2**25 + 3  # float32 would round it up to the value below
    for value in (2.0**25 + 4, -(2.0**25) - 4):
        with pytest.raises(OutOfRangeError):
            ring.encode(np.array([value], dtype=dtype), bound=bound)
    assert ring.encode(np.array([2.0**25], dtype=dtype), bound=bound).tolist() == [2**25]


@pytest.mark.parametrize("values", [[1j], ["1"], [None], [b"1"], np.array(["2020-01-01"], dtype="M8[D]")], ids=str)
def test_what_is_not_a_real_number_is_refused(values: npt.ArrayLike) -> None:
    with pytest.raises(RingError):
        Ring().encode(values)


def test_a_bound_cannot_widen_the_ring() -> None:
    with pytest.raises(OutOfRangeError):
        Ring(32, 0).encode([2.0**31], bound=2**40)


@pytest.mark.parametrize("value", [1e308, 2.0**15, -(2.0**15)])
def test_a_bound_outside_the_ring_is_refused(value: float) -> None:
    with pytest.raises(OutOfRangeError):
        Ring(bits=32, fraction_bits=16).units(value)


def test_a_real_bound_is_rounded_up_to_units() -> None:
    ring = Ring(32, 4)
    assert [ring.units(value) for value in (0.0, 1.0, 1.01, 0.0625, 0.06)] == [0, 16, 17, 1, 1]
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(NotFiniteError):
            ring.units(value)


def test_a_clipped_value_never_breaks_the_bound_made_from_the_clip() -> None:
    ring = Ring(32, 10)
    for clip in (0.1, 1.0, 3.3333):
        ring.encode(np.array([clip, -clip]), bound=ring.units(clip))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("cohort", [1, 7, 1000])
def test_the_budget_ends_exactly_below_half(bits: int, cohort: int) -> None:
    ring = Ring(bits, 4)
    most = (ring.half - 1) // cohort
    ring.check_budget(cohort=cohort, bound=most)
    ring.check_budget(cohort=cohort, bound=most, noise_tail=ring.half - 1 - cohort * most)
    with pytest.raises(OverflowBudgetError):
        ring.check_budget(cohort=cohort, bound=most, noise_tail=ring.half - cohort * most)
    with pytest.raises(OverflowBudgetError):
        ring.check_budget(cohort=cohort, bound=most + 1)


@pytest.mark.parametrize(("cohort", "bound", "tail"), [(0, 1, 0), (-1, 1, 0), (1, 0, 0), (1, -5, 0), (1, 1, -1)])
def test_a_budget_of_nothing_is_refused(cohort: int, bound: int, tail: int) -> None:
    with pytest.raises(OverflowBudgetError):
        Ring().check_budget(cohort=cohort, bound=bound, noise_tail=tail)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_cohort_within_the_budget_adds_up_and_one_beyond_it_wraps_around(bits: int) -> None:
    ring, cohort = Ring(bits, 0), 8
    for bound, fits in ((ring.half // cohort - 2**10, True), (ring.half // cohort, False)):
        total = ring.encode(np.full(cohort, float(bound)), bound=bound).sum(dtype=ring.dtype)
        assert (ring.decode(total) > 0) == fits
        if fits:
            ring.check_budget(cohort=cohort, bound=bound)
        else:
            with pytest.raises(OverflowBudgetError):
                ring.check_budget(cohort=cohort, bound=bound)


@pytest.mark.parametrize(("bits", "fraction"), [(16, 4), (33, 4), (0, 0), (32, -1), (32, 31), (64, 63)])
def test_a_ring_that_cannot_be_is_refused(bits: int, fraction: int) -> None:
    with pytest.raises(RingError):
        Ring(bits, fraction)


def test_ring_errors_name_no_value() -> None:
    for value in (77.5, -77.5):
        with pytest.raises(SecEmbError) as caught:
            Ring(32, 16).encode([value], bound=1)
        assert not any(character.isdigit() for character in str(caught.value))
