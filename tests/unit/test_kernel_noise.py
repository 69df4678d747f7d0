"""The kernel judges proposals of noise as the definition does, and refuses what it was not made for."""

import numpy as np
import pytest
from tests.unit.noise_bytes import SeededSource

from secemb_shared.kernel import judge_proposals, native_available
from secemb_shared.privacy import gaussian
from secemb_shared.privacy.gaussian import LARGEST_VARIANCE, UNDECIDED, Envelope, Judged, Words, draw

pytestmark = pytest.mark.skipif(not native_available(), reason="the C kernel was not built")

VARIANCES = [1, 2, 3, 4, 5, 17, 64, 1000, 2**20, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**50, 2**80, LARGEST_VARIANCE]


def natively(words: Words, envelope: Envelope) -> Judged:
    return judge_proposals(words, bits=envelope.bits, slope=envelope.slope, start=envelope.start)


def same(words: Words, envelope: Envelope) -> bool:
    values, verdicts = natively(words, envelope)
    defined, judged = gaussian.judge(words, envelope)
    open_ = judged == UNDECIDED  # what is proposed there is not known yet
    return np.array_equal(verdicts, judged) and np.array_equal(values[~open_], defined[~open_])


@pytest.mark.parametrize("variance", VARIANCES)
def test_verdicts_and_values_are_those_of_the_definition(variance: int) -> None:
    words = np.random.default_rng(variance % 2**32).integers(0, 2**64, (20_000, 2), dtype=np.uint64)
    assert same(words, Envelope.of(variance))


@pytest.mark.parametrize("variance", VARIANCES)
def test_extreme_words_are_judged_alike(variance: int) -> None:
    edges = [0, 1, 2, 2**16, 2**17, 2**17 + 2, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    words = np.array([(a, b) for a in edges for b in [*edges, *(1 << bit for bit in range(64))]], dtype=np.uint64)
    assert same(words, Envelope.of(variance))


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_same_bytes_give_the_same_noise(variance: int) -> None:
    native, portable = SeededSource(5), SeededSource(5)
    noise = draw(3000, variance=variance, random_bytes=native)
    assert np.array_equal(noise, draw(3000, variance=variance, random_bytes=portable, judge=gaussian.judge))
    assert native.asked == portable.asked


def test_a_comparison_of_judges_finds_a_verdict_that_differs() -> None:
    words, envelope = np.random.default_rng(1).integers(0, 2**64, (20_000, 2), dtype=np.uint64), Envelope.of(1000)
    other = Envelope(variance=1000, bits=envelope.bits, margin=envelope.margin + 2**42)
    assert not np.array_equal(natively(words, other)[1], gaussian.judge(words, envelope)[1])


@pytest.mark.parametrize(
    ("count", "bits", "start", "values", "verdicts"),
    [(4, 41, 0, 4, 4), (4, -1, 0, 4, 4), (4, 3, 2**52, 4, 4), (3, 3, 0, 4, 4), (4, 3, 0, 3, 4), (4, 3, 0, 4, 5)],
)
def test_sizes_and_ranges_that_do_not_fit_are_refused(
    count: int, bits: int, start: int, values: int, verdicts: int
) -> None:
    from secemb_shared import _kernel

    with pytest.raises(ValueError, match="kernel"):
        _kernel.judge_proposals(
            np.zeros((count, 2), np.uint64), bits, 1, start, np.zeros(values, np.int64), np.zeros(verdicts, np.uint8)
        )


def test_no_proposals_are_judged_without_harm() -> None:
    assert [part.size for part in judge_proposals(np.zeros((0, 2), np.uint64), bits=3, slope=1, start=1)] == [0, 0]
