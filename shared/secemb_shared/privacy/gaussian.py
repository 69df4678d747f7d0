"""Exact discrete Gaussian noise: integers with P(x) ∝ exp(−x²/2σ²), from a cryptographic source."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf import Backend, default_backend
from secemb_shared.errors import RingError
from secemb_shared.kernel import judge_proposals, native_available
from secemb_shared.prg import RingArray
from secemb_shared.randomness import RandomBytes, secure_bytes

POINT = 50  # fractional bits of an exponent
LARGEST_BITS = 40  # k; the noise then reaches 2^46, and a run of coins exceeds its word once in 2^23 proposals
LARGEST_VARIANCE = 4 ** (LARGEST_BITS + 1)

_LOG2_E = 0x171547652B82FE1777D0FFDA0D23A7D11  # log₂e · 2^128, rounded down
_SQUARE_OF_LN_2 = 0x7AFEF7FE0B163AA1BC5AC1BB25CD7F2B  # ln²2 · 2^128, rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The parameters for proposing noise of one variance and judging it."""

    variance: int  # σ²
    bits: int  # k
    margin: int  # c · 2^50

    @classmethod
    def of(cls, variance: int) -> Self:
        """Return the envelope for a σ² that is a whole number of squared steps."""
        if not 1 <= variance <= LARGEST_VARIANCE:
            raise RingError(f"the noise variance must be 1 to 2^{2 * LARGEST_BITS + 2} squared ring steps")
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


PROPOSAL_BYTES = 16
REJECTED, ACCEPTED, UNDECIDED = 0, 1, 2
MARGIN = 1 << 16  # of 2^63
STEPS = 57  # fractional bits of X/t, which is below 63

Words = npt.NDArray[np.uint64]
Judged = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]  # the proposed values, and which are accepted

# ln(2)^j / j! in units of 2^−63, rounded down: the series of 2^−f, whose first omitted term is below 2^−62.
# fmt: off
_TERMS = (
    0x8000000000000000, 0x58B90BFBE8E7BCD5, 0x1EBFBDFF82C58EA8, 0x071AC235C1282FE2, 0x013B2AB6FBA4E772,
    0x002BB0FFCF14CE62, 0x00050C244BE1B1E1, 0x00007FF2FF1622C3, 0x00000B160111D2E4, 0x000000DA929E9CAF,
    0x0000000F267A8AC5, 0x00000000F465639A, 0x000000000E1DEB28, 0x0000000000C0B0C9, 0x0000000000098A4B,
    0x00000000000070DB, 0x00000000000004E3, 0x0000000000000033,
)
# fmt: on
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def judge(words: Words, envelope: Envelope) -> Judged:
    """Return the value that each pair of words proposes, and whether it is accepted."""
    chance, drawn = words[:, 0] >> np.uint64(1), words[:, 1]
    bits = np.uint64(envelope.bits)
    run, negative = drawn >> (bits + np.uint64(1)), (drawn >> bits) & np.uint64(1)
    halvings = _trailing_zeros(run | np.uint64(1 << 62))
    size = (halvings << bits) + (drawn & np.uint64((1 << envelope.bits) - 1))
    scaled = size << np.uint64(STEPS - envelope.bits)
    exponent = _high_half(_high_half(scaled, scaled), np.uint64(envelope.slope)) + np.uint64(envelope.start)
    exponent = (exponent - (halvings << np.uint64(POINT))).view(np.int64)
    limit = _power(np.maximum(exponent, 0).view(np.uint64))
    accepted, rejected = chance + np.uint64(MARGIN) < limit, chance > limit + np.uint64(MARGIN)
    verdicts = np.where((run == 0) | ~(accepted | rejected), UNDECIDED, accepted).astype(np.uint8)
    verdicts[(negative == 1) & (size == 0)] = REJECTED  # zero has only one sign
    return np.where(negative == 1, -size.view(np.int64), size.view(np.int64)), verdicts


def _power(exponent: Words) -> Words:
    """Return 2^−exponent in units of 2^−63."""
    rest, whole = exponent << np.uint64(64 - POINT), exponent >> np.uint64(POINT)
    total = np.full(exponent.shape, _TERMS[-1], dtype=np.uint64)
    for term in reversed(_TERMS[:-1]):
        total = np.uint64(term) - _high_half(rest, total)
    power: Words = total >> np.minimum(whole, np.uint64(63))
    return power


def _trailing_zeros(words: Words) -> Words:
    return np.bitwise_count((words & (~words + np.uint64(1))) - np.uint64(1)).astype(np.uint64)


def _high_half(a: Words, b: Words | np.uint64) -> Words:
    """Return the upper 64 bits of the products, from four products of halves."""
    a_high, a_low, b_high, b_low = a >> _32, a & _LOW, b >> _32, b & _LOW
    first = a_high * b_low + (a_low * b_low >> _32)
    second = a_low * b_high + (first & _LOW)
    upper: Words = a_high * b_high + (first >> _32) + (second >> _32)
    return upper


_WORD = 64


def decide(chance: int, drawn: int, envelope: Envelope, random_bytes: RandomBytes) -> int | None:
    """Return the value that two words propose, or None if it is rejected; missing bits are drawn."""
    run, bits = drawn >> (envelope.bits + 1), envelope.bits
    halvings = _zeros_before_one(run, _WORD - 1 - bits, random_bytes)
    size, negative = (halvings << bits) + (drawn & ((1 << bits) - 1)), drawn >> bits & 1
    if (negative and size == 0) or not _is_below(chance, size, halvings, envelope, random_bytes):
        return None
    return -size if negative else size


def _zeros_before_one(run: int, length: int, random_bytes: RandomBytes) -> int:
    """Return the number of zeros before the first one, reading as many words as necessary."""
    before = 0
    while run == 0:
        before, length, run = before + length, _WORD, _draw(random_bytes)
    return before + (run & -run).bit_length() - 1


def _is_below(chance: int, size: int, halvings: int, envelope: Envelope, random_bytes: RandomBytes) -> bool:
    """Return whether 0.chance… < 2^V · exp(−X²/2σ² − c), where the dots are bits that are drawn if they matter."""
    # The exponent as a fraction: X²/2σ² + c.
    below = 2 * envelope.variance << POINT
    above = (size * size << POINT) + 2 * envelope.variance * envelope.margin
    length = _WORD
    while True:
        lowest, highest = _bounds(above, below, halvings, length)
        if chance + 1 <= lowest:
            return True
        if chance >= highest:
            return False
        chance, length = chance << _WORD | _draw(random_bytes), length + _WORD


def _bounds(above: int, below: int, halvings: int, length: int) -> tuple[int, int]:
    """Return integers just below and above 2^(length + halvings) / exp(above / below).

    All terms of the exponential are positive; each is rounded down in one sum and up in the other.
    """
    one = 1 << (length + halvings + _WORD)
    least = most = low = high = one
    n = 0
    while high > 1 or n * below < 2 * above:
        n += 1
        low, high = low * above // (n * below), -(-high * above // (n * below))
        least, most = least + low, most + high
    # From here on each term is at most half of the one before, so the omitted rest is at most the last term.
    most += high
    wanted = one << (length + halvings)
    return wanted // most, -(-wanted // least)


def _draw(random_bytes: RandomBytes) -> int:
    return int.from_bytes(random_bytes(_WORD // 8), "little")


Noise = npt.NDArray[np.int64]
Judge = Callable[[Words, Envelope], Judged]

_BATCH = 1 << 16  # proposals: two megabytes, which stay in cache
_KEY_BYTES = 16


@cache
def default_judge() -> Judge:
    """Return the kernel's function if it was built, else the definition."""
    return _judge_natively if native_available() else judge


def draw(
    count: int,
    *,
    variance: int,
    random_bytes: RandomBytes = secure_bytes,
    judge: Judge | None = None,
    backend: Backend | None = None,
) -> Noise:
    """Return `count` independent numbers from the discrete Gaussian of this variance (σ², in squared steps)."""
    envelope, noise, done = Envelope.of(variance), np.empty(count, dtype=np.int64), 0
    while done < count:
        words = _propose(min(_BATCH, 2 * (count - done) + 16), random_bytes, backend or default_backend())
        some = _accepted(words, envelope, random_bytes, judge or default_judge())[: count - done]
        noise[done : done + some.size] = some
        done += some.size
    return noise


def add_noise(values: RingArray, *, variance: int, random_bytes: RandomBytes = secure_bytes) -> None:
    """Add fresh noise to every element of `values` in place, in the ring of its type."""
    if not values.flags.c_contiguous:
        raise RingError("noise is added in place, so the array must be contiguous")
    flat = values.reshape(-1)  # a view
    for first in range(0, flat.size, _BATCH):
        part = flat[first : first + _BATCH]
        noise = draw(part.size, variance=variance, random_bytes=random_bytes)
        np.add(part, noise.view(np.uint64).astype(part.dtype), out=part)  # modulo 2^32, the upper half is dropped


def _propose(count: int, random_bytes: RandomBytes, backend: Backend) -> Words:
    words = np.zeros((count, 2), dtype=np.uint64)
    backend.add_stream(random_bytes(_KEY_BYTES), words, negative=False)
    return words


def _accepted(words: Words, envelope: Envelope, random_bytes: RandomBytes, judge: Judge) -> Noise:
    """Return the accepted values in the order of their proposals."""
    values, verdicts = judge(words, envelope)
    for place in np.flatnonzero(verdicts == UNDECIDED):
        value = decide(int(words[place, 0]), int(words[place, 1]), envelope, random_bytes)
        verdicts[place] = REJECTED if value is None else ACCEPTED
        values[place] = 0 if value is None else value
    accepted: Noise = values[verdicts == ACCEPTED]
    return accepted


def _judge_natively(words: Words, envelope: Envelope) -> Judged:
    return judge_proposals(words, bits=envelope.bits, slope=envelope.slope, start=envelope.start)
