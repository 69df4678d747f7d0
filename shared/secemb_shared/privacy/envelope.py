"""The curve that discrete Gaussian noise is proposed from, and the constants that proposals are judged with.

A proposal is X = ±(V·2^k + U): V counts how often a coin shows tails before heads, U is below 2^k, all bits fair. So X
is proposed with a weight 2^−V. The Gaussian wants a weight exp(−X²/2σ²). With t = 2^k and c ≥ ln²2·σ²/2t², because
V ≤ |X|/t,

    2^V · exp(−X²/2σ² − c)

is never above 1, and accepting X with this probability leaves the discrete Gaussian, exactly.

This is the rejection of Canonne, Kamath and Steinke (2020) with powers of two for the Laplace envelope, so that drawing
a proposal is looking at bits. t lies between half of σ and σ, where 48 to 55 of 100 proposals are accepted.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Self

from secemb_shared.errors import RingError

POINT = 50  # bits behind the point of an exponent
LARGEST_BITS = 40  # k; the noise then reaches 2^46, and a run of coins is longer than its word once in 2^23 proposals
LARGEST_VARIANCE = 4 ** (LARGEST_BITS + 1)

_LOG2_E = 0x171547652B82FE1777D0FFDA0D23A7D11  # log₂e · 2^128, rounded down
_SQUARE_OF_LN_2 = 0x7AFEF7FE0B163AA1BC5AC1BB25CD7F2B  # ln²2 · 2^128, rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """How noise of one variance is proposed and judged."""

    variance: int  # σ²
    bits: int  # k
    margin: int  # c · 2^50

    @classmethod
    def of(cls, variance: int) -> Self:
        """Return the envelope for a σ² that is a whole number of squared steps."""
        if not 1 <= variance <= LARGEST_VARIANCE:
            raise RingError(f"the variance of noise must be 1 to 2^{2 * LARGEST_BITS + 2} squared steps of the ring")
        bits = max(0, isqrt(variance - 1).bit_length() - 1)
        c = -(-(_SQUARE_OF_LN_2 * variance) // (2 << (2 * bits + 128 - POINT)))
        return cls(variance=variance, bits=bits, margin=c)

    @property
    def slope(self) -> int:
        """Return t²·log₂e / 2σ² in units of 2^−64, rounded down: how the exponent grows with (X/t)²."""
        return (_LOG2_E << 2 * self.bits) // (2 * self.variance << 64)

    @property
    def start(self) -> int:
        """Return c·log₂e in units of 2^−50, rounded down: the exponent at zero."""
        return self.margin * _LOG2_E >> 128
