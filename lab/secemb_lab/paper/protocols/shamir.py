"""Shamir's secret sharing of 32 bytes: any `threshold` shares give the secret, fewer reveal nothing."""

import secrets
from collections.abc import Mapping

PRIME = 2**256 + 297  # the smallest prime above 32 bytes
SHARE_BYTES = 33


def split(secret: bytes, *, shares: int, threshold: int) -> list[bytes]:
    """Return the shares of users 1, 2, …: the values there of a random polynomial that is the secret at 0."""
    if not 1 <= threshold <= shares:
        raise ValueError("a threshold is at least 1 and at most the number of shares")
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_value(coefficients, x).to_bytes(SHARE_BYTES) for x in range(1, shares + 1)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret from enough shares by the number of the user, from 1, by interpolation at 0."""
    secret = 0
    for x, share in shares.items():
        weight = 1
        for other in shares:
            if other != x:
                weight = weight * other * pow(other - x, -1, PRIME) % PRIME
        secret = (secret + weight * int.from_bytes(share)) % PRIME
    return (secret % 2**256).to_bytes(32)


def _value(coefficients: list[int], x: int) -> int:
    value = 0
    for one in reversed(coefficients):
        value = (value * x + one) % PRIME
    return value
