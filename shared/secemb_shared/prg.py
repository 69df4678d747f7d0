"""The block hash and the stream on which everything else is built (portable definition).

A block is 16 bytes, read as a little-endian pair of 64-bit words (lo, hi).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Blocks = npt.NDArray[np.uint8]  # (..., 16)
Bits = npt.NDArray[np.uint8]  # each 0 or 1
RingArray = npt.NDArray[Any]  # uint32 or uint64; arithmetic modulo 2^32 or 2^64

BLOCK = 16


def aes(key: bytes, blocks: Blocks) -> Blocks:
    """Encrypt each block independently."""
    # ECB is correct here: each block is an independent hash input or counter, not part of a message.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    flat = np.ascontiguousarray(blocks).reshape(-1)
    out = np.empty(flat.size + BLOCK - 1, dtype=np.uint8)
    encryptor.update_into(flat.data, out.data)
    return out[: flat.size].reshape(blocks.shape)


def sigma(blocks: Blocks) -> Blocks:
    """Return σ(hi‖lo) = (hi⊕lo ‖ hi), the linear orthomorphism that makes the hash correlation robust."""
    words = np.ascontiguousarray(blocks).view("<u8")
    out = np.empty_like(words)
    out[..., 0] = words[..., 1]
    out[..., 1] = words[..., 0] ^ words[..., 1]
    return out.view(np.uint8)


def hash_blocks(key: bytes, blocks: Blocks) -> Blocks:
    """Return H_K(x) = AES_K(σ(x)) ⊕ σ(x) for each block."""
    twisted = sigma(blocks)
    return aes(key, twisted) ^ twisted


def stream(key: bytes, count: int, first: int = 0) -> Blocks:
    """Return AES_K(first), AES_K(first + 1), …: the counter is the low word of the block."""
    return stream_at(key, np.arange(first, first + count, dtype=np.uint64))


def stream_at(key: bytes, places: npt.NDArray[np.integer]) -> Blocks:
    """Return the blocks of the stream at these positions."""
    counters = np.zeros((places.size, 2), dtype="<u8")
    counters[:, 0] = places
    return aes(key, counters.view(np.uint8))
