"""Which proposals become noise: the definition, in whole numbers only. shared/native/noise.h does the same.

A proposal is 16 random bytes: two words. The first is a chance A, the second holds U, the sign and the coins of V, from
its lowest bit on. With z = slope·(X/t)² + start − V the proposal is accepted if A < 2^−z. The exponent is known to
3.25 · 2^−50 and the power to 74 · 2^−63, together less than 2^15 · 2^−63 of the probability; where A is nearer to the
limit than twice that, nothing is decided here, and `deciding.py` looks at more bits of both. So the verdicts are those
of exact arithmetic, whoever computes them.
"""

import numpy as np
import numpy.typing as npt

from secemb_shared.privacy.envelope import POINT, Envelope

PROPOSAL_BYTES = 16
REJECTED, ACCEPTED, UNDECIDED = 0, 1, 2
MARGIN = 1 << 16  # of 2^63
STEPS = 57  # bits behind the point of X/t, which is below 63

Words = npt.NDArray[np.uint64]
Judged = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]  # what is proposed, and the verdict on it

# ln(2)^j / j! in units of 2^−63, rounded down: the series of 2^−f, whose first term left out is below 2^−62.
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
    """Return what each pair of words proposes, and whether it is accepted."""
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
    verdicts[(negative == 1) & (size == 0)] = REJECTED  # zero has one sign
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
