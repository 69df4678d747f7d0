"""Random bytes from a seed, so that a statistical test says the same each time."""

import numpy as np


class SeededSource:
    """Bytes of a seed, and how many were asked for."""

    def __init__(self, seed: int) -> None:
        self._random, self.asked = np.random.default_rng(seed), 0

    def __call__(self, count: int) -> bytes:
        self.asked += count
        return self._random.bytes(count)


class GivenWords:
    """These 64-bit words, one after the other, and no more."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def __call__(self, count: int) -> bytes:
        assert count == 8
        return self._words.pop(0).to_bytes(8, "little")
