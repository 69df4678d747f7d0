"""How much noise a clip asks for, and what each server sees of it."""

from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise_bytes import SeededSource

from secemb_shared.errors import OverflowBudgetError, RingError
from secemb_shared.privacy import Mechanism, add_noise
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
    assert Mechanism(clip=10, multiplier=Fraction("1.23")).variance == 152  # 151.29
    assert Mechanism(clip=10, multiplier=Fraction(2)).variance == 400


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
    ("clip", "multiplier", "parts"), [(0, 1, 1), (2**53, 1, 1), (100, 0, 1), (100, -1, 1), (100, 1, 0), (7, 1, 1)]
)
def test_noise_that_promises_nothing_is_refused(clip: int, multiplier: int, parts: int) -> None:
    with pytest.raises(RingError):
        Mechanism(clip=clip, multiplier=Fraction(multiplier), parts=parts)
