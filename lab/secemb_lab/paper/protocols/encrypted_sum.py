"""Sums under homomorphic encryption (CKKS, by TenSEAL): users hold the key, and one server adds ciphertexts.

Needs the extra `paper`. Packed, a ciphertext holds as many numbers as it has slots; the paper's figure fits one number
in each ciphertext.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

DEGREE, MODULI, SCALE = 8192, (60, 40, 60), 2.0**40  # 128 bits of security, and one unused multiplication
SLOTS = DEGREE // 2
MISSING = "TenSEAL is not installed here; pip install 'secemb[paper]' brings it."

Floats = npt.NDArray[np.float64]


def tenseal_is_here() -> bool:
    """Tell whether TenSEAL is installed."""
    return find_spec("tenseal") is not None


class Users:
    """What all users share: the key, with which each encrypts its update and reads the sum."""

    def __init__(self) -> None:
        import tenseal

        self._tenseal: Any = tenseal
        self._context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=list(MODULI))
        self._context.global_scale = SCALE

    def server(self) -> "Server":
        """Return a server, which gets the parameters without the key."""
        return Server(self._context.serialize(save_secret_key=False))

    def encrypt(self, values: Floats, *, slots: int = SLOTS) -> list[bytes]:
        """Return ciphertexts of this many numbers each."""
        parts = (values[place : place + slots] for place in range(0, values.size, slots))
        return [self._tenseal.ckks_vector(self._context, part).serialize() for part in parts]

    def decrypt(self, total: Sequence[bytes]) -> Floats:
        """Return the numbers of a sum."""
        vectors = (self._tenseal.ckks_vector_from(self._context, one) for one in total)
        return np.concatenate([one.decrypt() for one in vectors])


class Server:
    """Adds ciphertexts as they arrive."""

    def __init__(self, context: bytes) -> None:
        import tenseal

        self._tenseal: Any = tenseal
        self._context = tenseal.context_from(context)
        self._total: list[Any] = []

    def read(self, update: Sequence[bytes]) -> list[Any]:
        """Return one user's ciphertexts, ready to be added."""
        return [self._tenseal.ckks_vector_from(self._context, one) for one in update]

    def add(self, vectors: list[Any]) -> None:
        """Add one user's ciphertexts to the sum, which begins with the first one's own: copying takes seconds."""
        if not self._total:
            self._total = vectors
            return
        for held, new in zip(self._total, vectors, strict=True):
            held.add_(new)

    def total(self) -> list[bytes]:
        """Return the ciphertexts of the sum."""
        return [one.serialize() for one in self._total]

    def can_read(self) -> bool:
        """Tell whether the server has the key."""
        return bool(self._context.has_secret_key())
