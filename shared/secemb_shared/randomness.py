"""Protocol randomness: bytes from `secrets`, and the few draws made from them.

Every function takes the source of bytes as an argument so that test vectors can be generated; the default is
`secrets.token_bytes`, and the protocol uses no other source.
"""

import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

RandomBytes = Callable[[int], bytes]
Indices = npt.NDArray[np.int64]

secure_bytes: RandomBytes = secrets.token_bytes


def draw_below(bounds: Indices, random_bytes: RandomBytes = secure_bytes) -> Indices:
    """Return one number below each bound; with 64 random bits the bias is at most bound / 2^64."""
    words = np.frombuffer(random_bytes(8 * bounds.size), dtype="<u8").reshape(bounds.shape)
    return (words % bounds.astype(np.uint64)).astype(np.int64)


def sample(population: Indices, count: int, random_bytes: RandomBytes = secure_bytes) -> Indices:
    """Return `count` distinct members in random order (a shuffle by sorting random keys)."""
    keys = np.frombuffer(random_bytes(8 * population.size), dtype="<u8")
    return population[np.argsort(keys, kind="stable")[:count]]
