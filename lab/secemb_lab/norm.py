"""The probability that an update that is too long passes the norm proof: exact for simple vectors, and a bound for all.

Lengths are in units of the norm bound Δ, probabilities are logarithms to the base 2. A projection has entries −1, 0, 0
and +1, the squares of K projections may add up to K · Δ², and the ring is at least 32 Δ wide.
"""

import math
from collections.abc import Callable

import numpy as np

from secemb_shared.dpf.backend import PROJECTIONS

NARROWEST = 32.0  # the ring, in units of the largest bound that a task may have
LENGTHS = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)
TRIES = (1, 21, 46, 71)  # in powers of two
FLAT = (1, 2, 4, 16)  # equal entries


def dense(length: float, projections: int = PROJECTIONS) -> float:
    """Return the probability for many small entries: their projections are Gaussian with variance length² / 2."""
    # K squares of such numbers are at most s as often as a Poisson variable with mean s reaches K / 2.
    mean, first = projections / length**2, projections // 2
    terms = [at * math.log(mean) - mean - math.lgamma(at + 1) for at in range(first, first + 40 * projections)]
    return (max(terms) + math.log(math.fsum(math.exp(term - max(terms)) for term in terms))) / math.log(2)


def flat(length: float, entries: int, projections: int = PROJECTIONS) -> float:
    """Return the probability for this many equal entries, and zeros otherwise: all sums are counted."""
    most = int(projections * entries / length**2 + 1e-9)  # of the sum of squares, in units of one entry's square
    one = np.zeros(most + 1)
    for value in range(-entries, entries + 1):
        if value**2 <= most:
            one[value**2] += math.comb(2 * entries, entries + value) / 4.0**entries
    total = np.ones(1)
    for bit in f"{projections:b}":
        total = np.convolve(total, total)[: most + 1]
        if bit == "1":
            total = np.convolve(total, one)[: most + 1]
    return math.log2(total.sum())


def bound(length: float, projections: int = PROJECTIONS, ring: float = NARROWEST) -> float:
    """Return a bound for every vector of at least this length: sparse or dense, small or wrapping around the ring."""
    length = min(length, ring / 2)  # a longer vector is not more likely to pass
    steps = np.geomspace(0.02, 2, 30)
    return min(0.0, min(projections * (float(t) + _mean(length, ring, float(t))) for t in steps) / math.log(2))


def _mean(length: float, ring: float, t: float) -> float:
    """Return the logarithm of sup E[exp(−t R²)] over all vectors of this length.

    The sum of exp(−t (R + m · ring)²) over all m is Σ g(k) cos(2π k R / ring) with g ≥ 0, by Poisson's formula. Its
    mean over the entries of a projection is Σ g(k) Π cos²(π k x_i / ring). Hölder's inequality with the weights
    x_i² / length² bounds it by its value for n equal entries, where n ≥ 1 need not be whole.
    """
    last = math.ceil(3 * ring * math.sqrt(t)) + 3
    k = np.arange(1, last + 1)
    g = math.sqrt(math.pi / t) / ring * np.exp(-((math.pi * k / ring) ** 2) / t)
    n = np.concatenate([np.linspace(1, 6, 101), np.geomspace(6, 10_000, 30)])[:, None]
    cosines = np.abs(np.cos(np.pi * k * length / np.sqrt(n) / ring))
    means = math.sqrt(math.pi / t) / ring + 2 * (g * cosines ** (2 * n)).sum(axis=1)
    return math.log(means.max())


def honest_failure() -> tuple[float, float]:
    """Return the probability that an update of length Δ fails: for many small entries, and a bound for any."""
    # As in `dense`, but not reached; the entries are sub-Gaussian, so that E[exp(R² / 2)] is at most √2.
    mean = float(PROJECTIONS)
    fails = math.fsum(math.exp(at * math.log(mean) - mean - math.lgamma(at + 1)) for at in range(PROJECTIONS // 2))
    return math.log2(fails), PROJECTIONS * (0.5 - 0.5 / math.log(2))


def longest(probability: Callable[[float], float], tries: int) -> float:
    """Return the length that passes about once in 2^tries."""
    low, high = 1.0, NARROWEST / 2
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) > -tries else (low, middle)
    return high


def tables() -> str:
    """Return the tables of docs/reference/norm-proof.md."""
    rows = ["| length | many small entries | " + " | ".join(f"{n} equal" for n in FLAT) + " | bound for all |"]
    rows.append("| ---: " * (len(FLAT) + 3) + "|")
    for length in LENGTHS:
        found = [dense(length), *(flat(length, n) for n in FLAT), bound(length)]
        rows.append(f"| {length:g} Δ | " + " | ".join(f"2^{value:.1f}" for value in found) + " |")
    rows += ["", "| tries | many small entries | one entry | bound for all |", "| ---: | ---: | ---: | ---: |"]
    for tries in TRIES:
        lengths = [longest(probability, tries) for probability in (dense, lambda length: flat(length, 1), bound)]
        rows.append(f"| 2^{tries} | " + " | ".join(f"{length:.2f} Δ" for length in lengths) + " |")
    typical, most = honest_failure()
    return "\n".join(
        [*rows, "", f"An honest update of length Δ fails with probability 2^{typical:.1f}, and at most 2^{most:.1f}."]
    )


if __name__ == "__main__":
    print(tables())
