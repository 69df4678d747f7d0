"""Noise has the discrete Gaussian's distribution: frequencies, tails, variance. All seeds are fixed."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tests.unit.noise_bytes import SeededSource

from secemb_shared.errors import RingError
from secemb_shared.kernel import native_available
from secemb_shared.privacy import gaussian
from secemb_shared.privacy.gaussian import Judge, Noise, add_noise, default_judge, draw

JUDGES = [pytest.param(gaussian.judge, id="portable")]
if native_available():
    JUDGES.append(pytest.param(default_judge(), id="native"))
COUNT = 400_000


def exact_probabilities(variance: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the values within 12 σ and their probabilities, by their definition."""
    reach = int(12 * variance**0.5) + 3
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(np.float64) ** 2) / (2 * variance))
    return values, weights / weights.sum()


def p_value(noise: Noise, variance: int, *, width: int = 1) -> float:
    """Return how likely frequencies as far from the exact ones as these are; `width` values are one class."""
    values, probabilities = exact_probabilities(variance)
    classes = (values - values[0]) // width
    expected = np.bincount(classes, weights=probabilities) * noise.size
    found = np.bincount((noise - values[0]) // width, minlength=expected.size)
    rare = expected < 10
    both = [np.append(counts[~rare], counts[rare].sum()) for counts in (found, expected)]
    return float(stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue)


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("variance", [1, 2, 3, 4, 5, 10, 50, 63, 64, 65, 1000])
def test_every_value_comes_as_often_as_it_should(judge: Judge, variance: int) -> None:
    noise = draw(COUNT, variance=variance, random_bytes=SeededSource(variance), judge=judge)
    assert p_value(noise, variance) > 1e-4


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("variance", [2**24, 3 * 2**23 + 7, 10**10])
def test_classes_of_values_come_as_often_as_they_should(judge: Judge, variance: int) -> None:
    noise = draw(COUNT, variance=variance, random_bytes=SeededSource(variance % 1000), judge=judge)
    cuts = np.linspace(-4.5, 4.5, 181) * variance**0.5
    found, _ = np.histogram(noise, [-np.inf, *cuts, np.inf])
    expected = np.diff(stats.norm.cdf([-np.inf, *(cuts - 0.5) / variance**0.5, np.inf])) * COUNT
    keep = expected > 10
    assert stats.chisquare(found[keep], expected[keep] * found[keep].sum() / expected[keep].sum()).pvalue > 1e-4


@pytest.mark.parametrize("variance", [1, 5, 2**32, 2**33 - 5, 2**80])
def test_mean_and_variance_are_the_promised_ones(variance: int) -> None:
    noise = draw(COUNT, variance=variance, random_bytes=SeededSource(7)).astype(np.float64) / variance**0.5
    assert abs(noise.mean()) < 5 / COUNT**0.5
    assert abs(noise.var() - 1) < 5 * (2 / COUNT) ** 0.5


@pytest.mark.parametrize("variance", [2**31, 2**32 - 1])
def test_the_tails_are_as_heavy_as_a_gaussians(variance: int) -> None:
    noise = np.abs(draw(4 * COUNT, variance=variance, random_bytes=SeededSource(3))) / variance**0.5
    for reach in (2.0, 3.0, 4.0):
        expected = 4 * COUNT * 2 * stats.norm.sf(reach)
        assert abs((noise > reach).sum() - expected) < 5 * expected**0.5
    assert noise.max() < 7


def test_neighbouring_numbers_have_nothing_to_do_with_each_other() -> None:
    noise = draw(COUNT, variance=2**32, random_bytes=SeededSource(9)).astype(np.float64)
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(noise[:-lag], noise[lag:])[0, 1]) < 5 / COUNT**0.5


def test_a_frequency_test_finds_noise_that_was_rounded_from_a_continuous_one() -> None:
    rounded = np.rint(np.random.default_rng(1).normal(0, 2**0.5, COUNT)).astype(np.int64)
    assert p_value(rounded, 2) < 1e-4


def test_a_frequency_test_finds_a_zero_that_comes_twice_as_often() -> None:
    noise = draw(COUNT, variance=1000, random_bytes=SeededSource(2))
    noise[np.random.default_rng(1).random(COUNT) < 0.0126] = 0
    assert p_value(noise, 1000) < 1e-4


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_noise_is_added_in_the_ring_and_to_every_element(kind: type[np.unsignedinteger]) -> None:
    values = np.full((700, 300), np.iinfo(kind).max, dtype=kind)  # minus one: most sums wrap around
    before = values.copy()
    add_noise(values, variance=2**20, random_bytes=SeededSource(1))
    signed = (values - before).view(np.int32 if kind is np.uint32 else np.int64).astype(np.float64)
    assert abs(signed.std() / 2**10 - 1) < 0.01
    assert abs(signed.mean()) < 5 * 2**10 / signed.size**0.5
    assert (signed == 0).mean() < 0.002


def test_numbers_that_would_be_copied_first_are_refused() -> None:
    values = np.zeros((4, 4), dtype=np.uint32)
    with pytest.raises(RingError, match="contiguous"):
        add_noise(values[:, :2], variance=100)
    assert not values.any()


def test_no_two_draws_are_alike() -> None:
    assert not np.array_equal(draw(100, variance=2**32), draw(100, variance=2**32))
