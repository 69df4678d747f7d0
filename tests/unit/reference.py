"""The protocol by hand: one block, one leaf and one number at a time, as the paper writes it and as slow as it likes.

Nothing here uses the product. A block is a whole number (its 16 bytes, little-endian); seed and control bit are apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Node = tuple[int, int]  # seed s with its lowest bit cleared, control bit t


@dataclass(frozen=True)
class Word:
    """The correction word of one level."""

    seed: int
    left: int  # control bit for the left child
    right: int


def aes(key: bytes, block: int) -> int:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(encryptor.update(block.to_bytes(16, "little")), "little")


def hash_block(key: bytes, block: int) -> int:
    """H_K(x) = AES_K(σ(x)) ⊕ σ(x) with σ(hi‖lo) = (hi⊕lo ‖ hi)."""
    hi, lo = divmod(block, 2**64)
    twisted = (hi ^ lo) * 2**64 + hi
    return aes(key, twisted) ^ twisted


def child(key: bytes, seed: int) -> Node:
    block = hash_block(key, seed)
    return block - block % 2, block % 2


def path_gen(
    left: bytes, right: bytes, roots: tuple[int, int], alpha: int, depth: int
) -> tuple[list[Word], list[Node]]:
    """FSS.PathGen of one slot: the correction words, and both parties' nodes at the leaf."""
    nodes: list[Node] = [(root - root % 2, party) for party, root in enumerate(roots)]
    words = []
    for level in range(depth):
        bit = alpha // 2 ** (depth - 1 - level) % 2
        lefts = [child(left, seed) for seed, _ in nodes]
        rights = [child(right, seed) for seed, _ in nodes]
        kept, lost = (rights, lefts) if bit else (lefts, rights)
        word = Word(
            seed=lost[0][0] ^ lost[1][0],
            left=lefts[0][1] ^ lefts[1][1] ^ bit ^ 1,
            right=rights[0][1] ^ rights[1][1] ^ bit,
        )
        step = word.right if bit else word.left
        nodes = [
            (kept[party][0] ^ control * word.seed, kept[party][1] ^ control * step)
            for party, (_, control) in enumerate(nodes)
        ]
        words.append(word)
    return words, nodes


def path_eval(left: bytes, right: bytes, party: int, root: int, words: Sequence[Word], leaf: int) -> Node:
    """FSS.PathEval of one leaf; the else branch takes the right child."""
    seed, control = root - root % 2, party
    for level, word in enumerate(words):
        goes_right = leaf // 2 ** (len(words) - 1 - level) % 2
        below, bit = child(right if goes_right else left, seed)
        step = word.right if goes_right else word.left
        seed, control = below ^ control * word.seed, bit ^ control * step
    return seed, control


def convert(key: bytes, seed: int, width: int, bits: int) -> list[int]:
    """Return Convert(s): the blocks H_K(s ⊕ 0), H_K(s ⊕ 1), … cut into ring elements."""
    blocks = -(-width * bits // 128)
    pads = sum(hash_block(key, seed ^ counter) << 128 * counter for counter in range(blocks))
    return [pads >> bits * index & 2**bits - 1 for index in range(width)]


def convert_gen(key: bytes, nodes: Sequence[Node], payload: Sequence[int], bits: int) -> list[int]:
    """FSS.ConvertGen of one slot: (−1)^t₁ · (β − Convert(s₀) + Convert(s₁))."""
    pads = [convert(key, seed, len(payload), bits) for seed, _ in nodes]
    sign = -1 if nodes[1][1] else 1
    return [sign * (beta - pads[0][i] + pads[1][i]) % 2**bits for i, beta in enumerate(payload)]


def convert_eval(key: bytes, party: int, node: Node, words: Sequence[int], bits: int) -> list[int]:
    """FSS.ConvertEval of one leaf: (−1)^b · (Convert(s) + t · CW)."""
    seed, control = node
    pads = convert(key, seed, len(words), bits)
    return [(-1) ** party * (pad + control * word) % 2**bits for pad, word in zip(pads, words, strict=True)]


def stream(key: bytes, count: int, bits: int) -> list[int]:
    """Return `count` ring elements of AES_K(0), AES_K(1), …"""
    blocks = -(-count * bits // 128)
    pads = sum(aes(key, counter) << 128 * counter for counter in range(blocks))
    return [pads >> bits * index & 2**bits - 1 for index in range(count)]


def row_tag(key: bytes, item: int, row: Sequence[int]) -> int:
    """Chain h = H_K(h ⊕ block) over the row's 32-bit words, from the item's number; the tag is the lowest 32 bits."""
    state = item
    for at in range(0, len(row), 4):
        state = hash_block(key, state ^ sum(word << 32 * i for i, word in enumerate(row[at : at + 4])))
    return state % 2**32
