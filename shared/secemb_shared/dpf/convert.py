"""Payloads at the end of a path: Convert, FSS.ConvertGen and FSS.ConvertEval of the paper (portable definition)."""

import numpy as np

from secemb_shared.dpf.paths import SEED_BITS, control_bits
from secemb_shared.prg import BLOCK, Blocks, RingArray, hash_blocks


def convert(key: bytes, nodes: Blocks, width: int, dtype: np.dtype[np.unsignedinteger]) -> RingArray:
    """Return Convert(s), `width` ring elements a node: blocks H_K(s ⊕ 0), H_K(s ⊕ 1), … read little-endian."""
    blocks = -(-width * dtype.itemsize // BLOCK)
    inputs = np.repeat((nodes & SEED_BITS)[..., None, :], blocks, axis=-2)
    inputs.view("<u8")[..., 0] ^= np.arange(blocks, dtype=np.uint64)
    pads = hash_blocks(key, inputs).view(dtype.newbyteorder("<"))
    return pads.reshape(*nodes.shape[:-1], -1)[..., :width]


def convert_gen(key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
    """FSS.ConvertGen: CW = (−1)^t₁ · (β − Convert(s₀) + Convert(s₁)) for every slot."""
    width = payload.shape[-1]
    pads = [convert(key, leaf, width, payload.dtype) for leaf in (leaf0, leaf1)]
    words = payload - pads[0] + pads[1]
    negative = control_bits(leaf1)[..., None] == 1
    return np.where(negative, -words, words)


def convert_eval(key: bytes, party: int, nodes: Blocks, words: RingArray) -> RingArray:
    """FSS.ConvertEval: (−1)^b · (Convert(s) + t · CW); `words` broadcasts against the nodes."""
    pads = convert(key, nodes, words.shape[-1], words.dtype)
    share: RingArray = pads + control_bits(nodes)[..., None].astype(words.dtype) * words
    return -share if party else share
