"""Fixed-point numbers in Z_2^32, Z_2^64 or Z_2^24: two's complement with `fraction_bits` fractional bits.

Elements of the 24-bit ring are computed in 32-bit words, whose upper 8 bits mean nothing: reducing modulo 2^24 commutes
with additions, subtractions and products. They are three bytes wherever they are sent or hashed.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import NotFiniteError, OutOfRangeError, OverflowBudgetError, RingError
from secemb_shared.prg import RingArray

Floats = npt.NDArray[np.floating]

_24_BITS = (1 << 24) - 1


RING_BITS = (24, 32, 64)


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring in which updates are added, and the mapping between it and real numbers."""

    bits: int = 32
    fraction_bits: int = 16

    def __post_init__(self) -> None:
        if self.bits not in RING_BITS:
            raise RingError("ring bits must be 24, 32 or 64")
        if not 0 <= self.fraction_bits <= self.bits - 2:
            raise RingError("fraction bits must leave room for a sign and at least one bit")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Return the unsigned type in which elements are added."""
        return np.dtype(np.uint64 if self.bits == 64 else np.uint32)

    @property
    def element_bytes(self) -> int:
        """Return the size of one element as sent."""
        return self.bits // 8

    @property
    def is_packed(self) -> bool:
        """Return whether an element is shorter where it is sent than in memory."""
        return self.element_bytes < self.dtype.itemsize

    @property
    def half(self) -> int:
        """Return 2^(bits−1): a signed element lies in [−half, half)."""
        return 1 << (self.bits - 1)

    def units(self, value: float) -> int:
        """Return a bound as a whole number of the ring's smallest steps, rounded up."""
        if not math.isfinite(value):
            raise NotFiniteError("the bound must be finite")
        if abs(value) >= 2.0 ** (self.bits - 1 - self.fraction_bits):
            raise OutOfRangeError("the bound does not fit in the ring; use fewer fraction bits or a larger ring")
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
        encoded: RingArray = scaled.astype(np.int64 if self.bits == 64 else np.int32).view(self.dtype)
        return self.reduce(encoded)

    def decode(self, elements: RingArray) -> npt.NDArray[np.float64]:
        """Return the centred value: elements from half up are negative."""
        decoded = self.signed(elements).astype(np.float64)
        decoded /= 2.0**self.fraction_bits  # in place: a second array of this size would be the largest on a server
        return decoded

    def signed(self, elements: RingArray) -> npt.NDArray[np.signedinteger]:
        """Return the centred elements in steps: those from half up are negative."""
        plain: RingArray = np.asarray(elements, dtype=self.dtype)
        if self.bits == 64:
            return plain.view(np.int64)
        return plain.view(np.int32) if self.bits == 32 else (plain << np.uint32(8)).view(np.int32) >> np.int32(8)

    def reduce(self, elements: RingArray) -> RingArray:
        """Return the elements without the bits above the ring's."""
        return elements & np.uint32(_24_BITS) if self.bits == 24 else elements

    def pack(self, elements: RingArray) -> bytes | memoryview:
        """Return the elements as sent: little-endian, copied only if this machine stores them differently."""
        little = np.ascontiguousarray(elements, dtype=elements.dtype.newbyteorder("<"))
        return little.reshape(-1).view(np.uint8).reshape(-1, 4)[:, :3].tobytes() if self.bits == 24 else little.data

    def unpack(self, data: bytes | memoryview | npt.NDArray[np.uint8]) -> RingArray:
        """Reverse `pack`: elements in this machine's byte order and aligned, as the kernel requires."""
        if self.bits == 24:
            words = np.zeros((len(data) // 3, 4), dtype=np.uint8)
            words[:, :3] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
            data = words.reshape(-1)
        elements = np.frombuffer(data, dtype=self.dtype.newbyteorder("<"))
        return np.require(elements.astype(self.dtype, copy=False), requirements=["C", "A"])

    def check_budget(self, *, cohort: int, bound: int, noise_tail: int = 0) -> None:
        """Refuse a cohort whose sum could wrap around: cohort · bound + noise tail must stay below half."""
        if cohort < 1 or bound < 1 or noise_tail < 0:
            raise OverflowBudgetError("cohort and bound must be at least 1, and the noise tail at least 0")
        if cohort * bound + noise_tail >= self.half:
            raise OverflowBudgetError(
                f"the sum of {cohort} sessions of up to {bound} units and a noise tail of {noise_tail} can reach"
                f" 2^{self.bits - 1} and overflow: lower the cohort, the clip or the fraction bits, or use a"
                " larger ring"
            )

    @staticmethod
    def _refuse(values: Floats) -> None:
        if not np.isfinite(values).all():
            raise NotFiniteError("NaN or infinity cannot be encoded; clip or drop the update first")
        raise OutOfRangeError("a value exceeds the task's bound or the ring; clip the update first")
