"""All random bytes of a session from one seed, so that an app that was killed can build the same session again."""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secemb_shared.randomness import RandomBytes

SEED_BYTES = 32
SESSION_BYTES = 16


class SeededBytes:
    """A `RandomBytes` that gives the same bytes in the same order: AES-256 in counter mode under the seed.

    A seed belongs to one session. Whoever knows it knows the session's paths.
    """

    __slots__ = ("_stream",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a session's seed has {SEED_BYTES} bytes")
        # The counter may start at zero because every seed is used for one stream only.
        self._stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def __repr__(self) -> str:
        return "<SeededBytes>"

    def __call__(self, count: int) -> bytes:
        """Return the next bytes of the stream."""
        return self._stream.update(bytes(count))


def session_id_of(seed: bytes) -> bytes:
    """Return the id that a session with this seed will draw: the first of its bytes."""
    return SeededBytes(seed)(SESSION_BYTES)


def generator_seed(random_bytes: RandomBytes) -> int:
    """Return a seed for NumPy, for what is no part of the protocol: first weights."""
    return int.from_bytes(random_bytes(16), "little")
