"""The Gaussian mechanism in the ring: how much noise each server adds for a clip, and how far it reaches.

Each server adds the whole noise to its own share. A server can take its own noise off the sum again, and then sees the
other's alone: σ = multiplier · clip. Who sees only the published model sees both, √2 · σ. The paper's two servers add
half of this variance each, so that against either of them its noise is too small by √2 (docs/adr/0010).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from secemb_shared.errors import RingError
from secemb_shared.privacy.clip import LARGEST_LIMIT
from secemb_shared.privacy.gaussian import LARGEST_VARIANCE

# Both servers' noise together is sub-Gaussian with variance 2σ²: beyond 18σ lies 2 · exp(−81) < 2^−115 of it. Of 2^64
# elements, more than any task ever has, one gets there with a probability below 2^−51.
TAIL = 18
# Accountants know the continuous Gaussian. The discrete one has the same zero-concentrated privacy, but its δ of a
# given ε is larger. By exact sums, for multipliers from 0.2 and δ from 10^−12 on: by up to 6 % at σ = 8, 0.4 % at 32,
# and less than 0.006 % here, falling like 1/σ².
SMALLEST_DEVIATION = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """Noise for sums in which one unit of privacy changes a vector of at most `clip` steps."""

    clip: int  # Δ₂, in the ring's smallest steps
    multiplier: Fraction  # σ / Δ₂, against a single server
    parts: int = 1  # vectors that are clipped to their own limits but change together

    def __post_init__(self) -> None:
        if not 1 <= self.clip <= LARGEST_LIMIT:
            raise RingError(f"a clip must be 1 to {LARGEST_LIMIT:,} ring steps")
        if self.multiplier <= 0 or self.parts < 1:
            raise RingError("a noise multiplier must be positive")
        if not SMALLEST_DEVIATION**2 <= self.variance <= LARGEST_VARIANCE:
            raise RingError(
                "the noise scale is outside the supported range; change the fraction bits or the multiplier"
            )

    @property
    def variance(self) -> int:
        """Return σ² of each server's noise in squared steps, rounded up.

        Where several parts are clipped apart, a unit may change each of them by its own clip. In units of the clips
        that is a vector of length √parts, and the noise is as much larger.
        """
        wanted = self.multiplier**2 * self.clip**2 * self.parts
        return -(-wanted.numerator // wanted.denominator)

    @property
    def tail(self) -> int:
        """Return how many steps both servers' noise together stays below, for every element of every round."""
        return TAIL * (isqrt(self.variance - 1) + 1)
