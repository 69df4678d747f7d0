"""Proposals on which 64 bits do not decide: as many bits as it takes, in whole numbers of any length.

About one proposal in 2^46 comes here because its chance lies too near to the limit, and one in 2^(63−k) because its
coins have not shown heads yet. It is what makes the sampler exact, and seldom enough for Python's own numbers.
"""

from secemb_shared.privacy.envelope import POINT, Envelope
from secemb_shared.randomness import RandomBytes

_WORD = 64


def decide(chance: int, drawn: int, envelope: Envelope, random_bytes: RandomBytes) -> int | None:
    """Return the value that two words propose, or nothing where it is rejected; what bits are missing is drawn."""
    run, bits = drawn >> (envelope.bits + 1), envelope.bits
    halvings = _trailing_zeros(run, _WORD - 1 - bits, random_bytes)
    size, negative = (halvings << bits) + (drawn & ((1 << bits) - 1)), drawn >> bits & 1
    if (negative and size == 0) or not _is_below(chance, size, halvings, envelope, random_bytes):
        return None
    return -size if negative else size


def _trailing_zeros(run: int, length: int, random_bytes: RandomBytes) -> int:
    """Return how many zeros stand before the first one, in as many words as it takes."""
    before = 0
    while run == 0:
        before, length, run = before + length, _WORD, _draw(random_bytes)
    return before + (run & -run).bit_length() - 1


def _is_below(chance: int, size: int, halvings: int, envelope: Envelope, random_bytes: RandomBytes) -> bool:
    """Tell whether 0.chance… < 2^V · exp(−X²/2σ² − c), where the dots are bits that are drawn if they matter."""
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
    """Return whole numbers around 2^(length + halvings) / exp(above / below).

    All terms of the exponential are positive; each is rounded down in one sum and up in the other.
    """
    one = 1 << (length + halvings + _WORD)
    least = most = low = high = one
    n = 0
    while high > 1 or n * below < 2 * above:
        n += 1
        low, high = low * above // (n * below), -(-high * above // (n * below))
        least, most = least + low, most + high
    # From here on each term is at most half of the one before: what is left out is no more than the last.
    most += high
    wanted = one << (length + halvings)
    return wanted // most, -(-wanted // least)


def _draw(random_bytes: RandomBytes) -> int:
    return int.from_bytes(random_bytes(_WORD // 8), "little")
