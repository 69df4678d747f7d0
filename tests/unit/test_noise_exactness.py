"""Every verdict on a proposal of noise is the one of exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.noise_bytes import GivenWords, SeededSource

from secemb_shared.errors import RingError
from secemb_shared.privacy import gaussian
from secemb_shared.privacy import gaussian as envelopes
from secemb_shared.privacy.gaussian import (
    ACCEPTED,
    LARGEST_VARIANCE,
    POINT,
    UNDECIDED,
    Envelope,
    _accepted,
    _bounds,
    decide,
)

DIGITS = 120
WORDS = st.integers(0, 2**64 - 1)
VARIANCES = st.one_of(st.integers(1, 100), st.integers(1, 2**40), st.integers(1, LARGEST_VARIANCE))


def probability(size: int, halvings: int, envelope: Envelope) -> mpmath.mpf:
    """Return 2^V · exp(−X²/2σ² − c) to many digits."""
    with mpmath.workdps(DIGITS):
        exponent = mpmath.mpf(size) ** 2 / (2 * mpmath.mpf(envelope.variance)) + mpmath.mpf(envelope.margin) / 2**POINT
        return mpmath.mpf(2) ** halvings * mpmath.exp(-exponent)


def proposed(drawn: int, envelope: Envelope) -> tuple[int, int]:
    """Return |X| and V of a word that shows heads."""
    run = drawn >> (envelope.bits + 1)
    halvings = (run & -run).bit_length() - 1
    return (halvings << envelope.bits) + (drawn & ((1 << envelope.bits) - 1)), halvings


def verdict(chance: int, drawn: int, envelope: Envelope) -> tuple[int, int]:
    values, verdicts = gaussian.judge(np.array([(chance, drawn)], dtype=np.uint64), envelope)
    return int(values[0]), int(verdicts[0])


@settings(max_examples=400, deadline=None)
@given(WORDS, WORDS, VARIANCES, st.integers(-(2**20), 2**20), st.booleans())
def test_a_verdict_is_the_exact_one_however_near_the_limit(
    chance: int, drawn: int, variance: int, offset: int, near: bool
) -> None:
    envelope = Envelope.of(variance)
    size, halvings = proposed(drawn | 1 << 63, envelope)
    drawn |= 1 << 63  # heads at the latest in the last bit
    with mpmath.workdps(DIGITS):
        limit = probability(size, halvings, envelope) * 2**64
        if near:
            chance = max(0, min(2**64 - 1, int(mpmath.floor(limit)) + offset))
        exact = chance + 1 <= limit, chance >= limit  # surely below, surely not
    value, found = verdict(chance, drawn, envelope)
    negative = drawn >> envelope.bits & 1
    if found == ACCEPTED:
        assert exact == (True, False)
        assert value == (-size if negative else size)
    elif found != UNDECIDED and not (negative and size == 0):
        assert exact == (False, True)


@settings(max_examples=200, deadline=None)
@given(WORDS, WORDS, VARIANCES)
def test_the_probability_never_exceeds_one(chance: int, drawn: int, variance: int) -> None:
    envelope = Envelope.of(variance)
    size, halvings = proposed(drawn | 1 << 63, envelope)
    assert probability(size, halvings, envelope) <= 1


@settings(max_examples=200, deadline=None)
@given(WORDS, VARIANCES, st.sampled_from([64, 128]))
def test_the_bounds_of_exact_numbers_lie_around_the_probability(drawn: int, variance: int, length: int) -> None:
    envelope = Envelope.of(variance)
    size, halvings = proposed(drawn | 1 << 63, envelope)
    exponent = Fraction(size * size, 2 * variance) + Fraction(envelope.margin, 2**POINT)
    lowest, highest = _bounds(exponent.numerator, exponent.denominator, halvings, length)
    with mpmath.workdps(DIGITS):
        assert lowest <= probability(size, halvings, envelope) * 2**length <= highest
    assert highest - lowest <= 2


def test_a_chance_on_the_limit_is_decided_by_further_bits() -> None:
    envelope = Envelope.of(10_000)
    drawn = 1 << (envelope.bits + 1) | 17  # heads at once
    size, halvings = proposed(drawn, envelope)
    with mpmath.workdps(DIGITS):
        limit = probability(size, halvings, envelope)
        chance = int(mpmath.floor(limit * 2**64))
        further = int(mpmath.floor((limit * 2**64 - chance) * 2**64))
    assert verdict(chance, drawn, envelope)[1] == UNDECIDED
    assert decide(chance, drawn, envelope, GivenWords(further - 1)) == size
    assert decide(chance, drawn, envelope, GivenWords(further + 1)) is None
    assert decide(chance, drawn, envelope, GivenWords(further, 0)) == size  # and again on the limit: one word more
    assert decide(chance, drawn, envelope, GivenWords(further, 2**64 - 1)) is None


def test_coins_that_go_on_showing_tails_are_thrown_again() -> None:
    envelope = Envelope.of(LARGEST_VARIANCE)
    drawn = 5  # 23 tails in a row, the largest number that the word has room for
    assert verdict(2**63, drawn, envelope)[1] == UNDECIDED
    assert decide(2**63, drawn, envelope, GivenWords(1)) is None  # 23 tails: far out, and a chance of a half
    assert decide(0, drawn, envelope, GivenWords(1, *[0] * 20)) == (23 << envelope.bits) + 5
    assert decide(0, drawn, envelope, GivenWords(0, 1, *[0] * 400)) == ((23 + 64) << envelope.bits) + 5


def test_what_was_undecided_takes_its_place_among_the_others() -> None:
    envelope = Envelope.of(LARGEST_VARIANCE)
    heads = 1 << (envelope.bits + 1)
    words = np.array([(2**40, heads | 1), (0, 5), (2**40, heads | 9), (2**63, 5)], dtype=np.uint64)
    assert gaussian.judge(words, envelope)[1].tolist() == [ACCEPTED, UNDECIDED, ACCEPTED, UNDECIDED]
    found = _accepted(words, envelope, GivenWords(1, 0, 0, 0, 1), gaussian.judge)
    assert found.tolist() == [1, (23 << envelope.bits) + 5, 9]


@pytest.mark.parametrize("variance", [0, -1, LARGEST_VARIANCE + 1])
def test_a_variance_that_cannot_be_drawn_is_refused(variance: int) -> None:
    with pytest.raises(RingError, match="variance"):
        Envelope.of(variance)


def test_the_constants_are_what_they_are_called() -> None:
    with mpmath.workdps(DIGITS):
        assert int(mpmath.floor(2**128 / mpmath.log(2))) == envelopes._LOG2_E
        assert int(mpmath.ceil(2**128 * mpmath.log(2) ** 2)) == envelopes._SQUARE_OF_LN_2
        terms = [int(mpmath.floor(2**63 * mpmath.log(2) ** j / mpmath.factorial(j))) for j in range(18)]
    assert tuple(terms) == gaussian._TERMS


def test_the_judge_can_be_caught_with_a_term_of_the_series_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(1).integers(0, 2**64, (200_000, 2), dtype=np.uint64)
    envelope = Envelope.of(10**6)
    sound = gaussian.judge(words, envelope)[1]
    monkeypatch.setattr(gaussian, "_TERMS", gaussian._TERMS[:4])
    wrong = np.flatnonzero((gaussian.judge(words, envelope)[1] != sound) & (sound != UNDECIDED))
    assert wrong.size
    place = wrong[0]
    exact = decide(int(words[place, 0]), int(words[place, 1]), envelope, SeededSource(1)) is not None
    assert exact == (sound[place] == ACCEPTED)
