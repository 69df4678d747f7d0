"""Fixed-point numbers in Z_2^32 or Z_2^64: two's complement with `fraction_bits` fractional bits."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import NotFiniteError, OutOfRangeError, OverflowBudgetError, RingError
from secemb_shared.prg import RingArray

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring in which updates are added, and the mapping between it and real numbers."""

    bits: int = 32
    fraction_bits: int = 16

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise RingError("ring bits must be 32 or 64")
        if not 0 <= self.fraction_bits <= self.bits - 2:
            raise RingError("fraction bits must leave room for a sign and at least one bit")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Return the unsigned type whose arithmetic is the ring's."""
        return np.dtype(np.uint32 if self.bits == 32 else np.uint64)

    @property
    def element_bytes(self) -> int:
        """Return the size of one element."""
        return self.bits // 8

    @property
    def half(self) -> int:
        """Return 2^(bits−1): a signed element lies in [−half, half)."""
        return 1 << (self.bits - 1)

    def units(self, value: float) -> int:
        """Return a bound as a whole number of the ring's smallest steps, rounded up."""
        if not math.isfinite(value):
            raise NotFiniteError("the bound must be finite")
        if abs(value) >= 2.0 ** (self.bits - 1 - self.fraction_bits):
            raise OutOfRangeError("the bound does not fit in the ring; use fewer fraction bits or the 64-bit ring")
        return math.ceil(value * 2.0**self.fraction_bits)

    def encode(self, values: npt.ArrayLike, *, bound: int | None = None) -> RingArray:
        """Return the nearest ring elements; refuse NaN, infinity and anything beyond `bound` units or the ring."""
        floats = np.asarray(values)
        if floats.dtype.kind not in "fiub":
            raise RingError("only real numbers can be encoded")
        if floats.dtype not in (np.float32, np.float64):
            floats = floats.astype(np.float64)
        # A power of two scales exactly (for float32 too), so rounding is the only loss. If scaling overflows to
        # infinity, the value is out of range like any other, and is refused below.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.rint(floats * floats.dtype.type(2.0**self.fraction_bits))
            # Python compares a float with an int exactly; NumPy would round the bound to float32 first.
            lowest, highest = (float(scaled.min()), float(scaled.max())) if scaled.size else (0.0, 0.0)
        limit = self.half if bound is None else bound
        if not (-limit <= lowest and highest <= limit and highest < self.half):
            self._refuse(floats)
        signed = np.int32 if self.bits == 32 else np.int64
        encoded: RingArray = scaled.astype(signed).view(self.dtype)
        return encoded

    def decode(self, elements: RingArray) -> npt.NDArray[np.float64]:
        """Return the centred value: elements from half up are negative."""
        plain: RingArray = np.asarray(elements, dtype=self.dtype)
        signed = plain.view(np.int32 if self.bits == 32 else np.int64)
        decoded = signed.astype(np.float64)
        decoded /= 2.0**self.fraction_bits  # in place: a second array of this size would be the largest on a server
        return decoded

    def check_budget(self, *, cohort: int, bound: int, noise_tail: int = 0) -> None:
        """Refuse a cohort whose sum could wrap around: cohort · bound + noise tail must stay below half."""
        if cohort < 1 or bound < 1 or noise_tail < 0:
            raise OverflowBudgetError("cohort and bound must be at least 1, and the noise tail at least 0")
        if cohort * bound + noise_tail >= self.half:
            raise OverflowBudgetError(
                f"the sum of {cohort} sessions of up to {bound} units and a noise tail of {noise_tail} can reach"
                f" 2^{self.bits - 1} and overflow: lower the cohort, the clip or the fraction bits, or use the"
                " 64-bit ring"
            )

    @staticmethod
    def _refuse(values: Floats) -> None:
        if not np.isfinite(values).all():
            raise NotFiniteError("NaN or infinity cannot be encoded; clip or drop the update first")
        raise OutOfRangeError("a value exceeds the task's bound or the ring; clip the update first")
