"""The Gaussian mechanism in the ring: how much noise each server adds for a clip, and bounds on its size.

Each server adds the full noise to its own share. A server can subtract its own noise from the sum, and then only the
other's protects it: σ = multiplier · clip. Anyone who sees only the published model sees both, √2 · σ. In the paper
each server adds half of this variance, so against either of them the noise is too small by √2 (docs/adr/0010).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from secemb_shared.errors import RingError
from secemb_shared.privacy.clip import LARGEST_LIMIT
from secemb_shared.privacy.gaussian import LARGEST_VARIANCE

# Both servers' noise together is sub-Gaussian with variance 2σ²: it exceeds 18σ with probability 2 · exp(−81) < 2^−115.
# Among 2^64 elements, more than any task ever has, one exceeds it with a probability below 2^−51.
TAIL = 18
# Accountants assume the continuous Gaussian. The discrete one has the same zero-concentrated privacy, but its δ for a
# given ε is larger. By exact sums, for multipliers of at least 0.2 and δ of at least 10^−12: by up to 6 % at σ = 8, 0.4
# % at 32, and less than 0.006 % here, decreasing like 1/σ².
SMALLEST_DEVIATION = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """Noise for sums in which one unit of privacy changes a vector of at most `clip` steps."""

    clip: int  # Δ₂, in the ring's smallest steps
    multiplier: Fraction  # σ / Δ₂, against a single server
    parts: int = 1  # number of vectors that are clipped separately but change together

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

        If several parts are clipped separately, a unit may change each of them by its own clip. In units of the clips
        this is a vector of length √parts, so the noise is larger by this factor.
        """
        wanted = self.multiplier**2 * self.clip**2 * self.parts
        return -(-wanted.numerator // wanted.denominator)

    @property
    def tail(self) -> int:
        """Return a bound in steps on both servers' noise together, for every element of every round."""
        return TAIL * (isqrt(self.variance - 1) + 1)
