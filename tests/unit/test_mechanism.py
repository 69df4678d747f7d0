"""How much noise a clip asks for, and what each server sees of it."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats
from tests.unit.noise_bytes import SeededSource

from secemb_shared.errors import OverflowBudgetError, RingError
from secemb_shared.privacy import Mechanism, add_noise
from secemb_shared.privacy.mechanism import SMALLEST_DEVIATION
from secemb_shared.ring import Ring

ELEMENTS = 200_000


def shares_with_noise(mechanism: Mechanism) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return two shares of a sum of zeros as the servers store them, and the noise that each has added."""
    mask = np.random.default_rng(3).integers(0, 2**32, ELEMENTS, dtype=np.uint32)
    plain = [mask, np.uint32(0) - mask]
    noisy = [share.copy() for share in plain]
    for server, share in enumerate(noisy):
        add_noise(share, variance=mechanism.variance, random_bytes=SeededSource(server))
    return noisy, [share - before for share, before in zip(noisy, plain, strict=True)]


def variance_of(elements: np.ndarray) -> float:
    return float(elements.view(np.int32).astype(np.float64).var())


@pytest.mark.parametrize(("clip", "multiplier"), [(1000, "1"), (65_536, "0.7"), (300, "12.5")])
def test_a_server_that_takes_its_own_noise_off_still_sees_the_promised_variance(clip: int, multiplier: str) -> None:
    mechanism = Mechanism(clip=clip, multiplier=Fraction(multiplier))
    noisy, own = shares_with_noise(mechanism)
    total = noisy[0] + noisy[1]
    promised = (float(multiplier) * clip) ** 2
    for server in (0, 1):
        assert abs(variance_of(total - own[server]) / promised - 1) < 0.02
    assert abs(variance_of(total) / (2 * promised) - 1) < 0.02  # who sees the model alone


def test_half_the_noise_from_each_as_in_the_paper_is_too_little_against_a_server() -> None:
    promised = Mechanism(clip=1000, multiplier=Fraction(2))
    halves = Mechanism(clip=1000, multiplier=Fraction(2) / Fraction("1.4142135623"))
    noisy, own = shares_with_noise(halves)
    total = noisy[0] + noisy[1]
    assert abs(variance_of(total) / promised.variance - 1) < 0.02  # right for an outsider
    assert abs(variance_of(total - own[0]) / promised.variance - 0.5) < 0.02  # short by √2 for server 0


def test_the_variance_is_rounded_up_and_never_down() -> None:
    assert Mechanism(clip=301, multiplier=Fraction("1.23")).variance == 137_071  # 137,070.25…
    assert Mechanism(clip=300, multiplier=Fraction(2)).variance == 360_000


def test_parts_with_their_own_clips_need_noise_for_both_at_once() -> None:
    one = Mechanism(clip=1000, multiplier=Fraction(3))
    assert Mechanism(clip=1000, multiplier=Fraction(3), parts=2).variance == 2 * one.variance


def test_no_noise_of_both_servers_gets_beyond_the_tail() -> None:
    mechanism = Mechanism(clip=1000, multiplier=Fraction(1))
    noisy, _ = shares_with_noise(mechanism)
    assert np.abs((noisy[0] + noisy[1]).view(np.int32)).max() < mechanism.tail / 2
    assert mechanism.tail == 18_000


def test_the_overflow_budget_counts_the_tail() -> None:
    ring, mechanism = Ring(), Mechanism(clip=2**20, multiplier=Fraction(100))
    ring.check_budget(cohort=100, bound=2**20, noise_tail=mechanism.tail)
    wide = Mechanism(clip=2**20, multiplier=Fraction(110))
    with pytest.raises(OverflowBudgetError, match="noise tail"):
        ring.check_budget(cohort=100, bound=2**20, noise_tail=wide.tail)


@pytest.mark.parametrize(
    ("clip", "multiplier", "parts"), [(0, 1, 1), (2**53, 1, 1), (100, 0, 1), (100, -1, 1), (100, 1, 0), (255, 1, 1)]
)
def test_noise_that_promises_nothing_is_refused(clip: int, multiplier: int, parts: int) -> None:
    with pytest.raises(RingError):
        Mechanism(clip=clip, multiplier=Fraction(multiplier), parts=parts)


# The accountant's Gaussian is continuous; the one that is drawn is not.


def delta_of_steps(deviation: int, clip: int, epsilon: float) -> float:
    """Return the smallest δ of the discrete Gaussian for this ε, by a sum over every number that counts."""
    far = 40 * deviation + clip
    numbers = np.arange(-far, far + 1, dtype=np.float64)
    weights = np.exp(-(numbers**2) / (2 * deviation**2))
    losses = (clip**2 - 2 * clip * numbers) / (2 * deviation**2)
    worse = losses > epsilon
    return float((weights[worse] * -np.expm1(epsilon - losses[worse])).sum() / weights.sum())


def delta_of_gaussian(multiplier: float, epsilon: float) -> float:
    near, far = 1 / (2 * multiplier) - epsilon * multiplier, -1 / (2 * multiplier) - epsilon * multiplier
    return float(stats.norm.cdf(near) - np.exp(epsilon + stats.norm.logcdf(far)))


def largest_excess(deviation: int, multiplier: float) -> float:
    """Return by how much, relatively, the discrete δ is larger at most, over ε with δ from 10^−12 to 10^−3."""
    clip = round(deviation / multiplier)
    exact = deviation / clip
    found = []
    for delta in (1e-3, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12):
        middle = optimize.brentq(lambda e, d=delta: delta_of_gaussian(exact, e) - d, 0, 200)
        step = clip / deviation**2  # of losses; between two of them the excess goes up and down once
        around = [middle + step * at / 10 for at in range(-10, 11)]
        found += [delta_of_steps(deviation, clip, e) / delta_of_gaussian(exact, e) - 1 for e in around if e > 0]
    return max(found)


@pytest.mark.parametrize("multiplier", [0.2, 0.5, 1.0, 3.0, 10.0])
def test_the_smallest_noise_is_as_good_as_the_accountants(multiplier: float) -> None:
    assert largest_excess(SMALLEST_DEVIATION, multiplier) < 6e-5


def test_finer_noise_would_not_be() -> None:
    assert 0.05 < largest_excess(8, 0.2) < 0.06
    assert 0.003 < largest_excess(32, 0.2) < 0.004
