"""Paths of the point-function sharing: FSS.PathGen and FSS.PathEval of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np

from secemb_shared.errors import PathSpentError
from secemb_shared.labels import Label, Purpose
from secemb_shared.prg import BLOCK, Bits, Blocks, hash_blocks
from secemb_shared.randomness import Indices

SEED_BITS = np.array([0xFE] + [0xFF] * 15, dtype=np.uint8)
LOWEST_BIT = np.array([0x01] + [0x00] * 15, dtype=np.uint8)


@dataclass(frozen=True, slots=True, repr=False)
class SessionKeys:
    """The three public AES keys of a session: left child, right child and Convert."""

    left: bytes
    right: bytes
    convert: bytes

    @classmethod
    def of(cls, label: Label) -> Self:
        """Derive the keys of the session that `label` names."""
        purposes = (Purpose.LEFT_CHILD, Purpose.RIGHT_CHILD, Purpose.CONVERT)
        return cls(*(label.key(purpose) for purpose in purposes))

    def block(self) -> Blocks:
        """Return the keys as (3, 16) bytes."""
        return np.frombuffer(self.left + self.right + self.convert, dtype=np.uint8).reshape(3, BLOCK)


@dataclass(frozen=True, slots=True, repr=False)
class CorrectionWords:
    """The public part of a session's keys, the same for both parties."""

    left: Blocks  # (depth, slots, 16): s_CW with t_CW^L in the lowest bit
    right: Bits  # (depth, slots): t_CW^R

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return int(self.right.shape[0])

    @property
    def slots(self) -> int:
        """Return the number of trees."""
        return int(self.right.shape[1])


@dataclass(frozen=True, slots=True, repr=False)
class HeldKeys:
    """One party's data for one or more sessions: everything it needs to walk every tree."""

    party: int
    keys: Blocks  # (sessions, 3, 16): the public AES keys
    roots: Blocks  # (sessions, slots, 16)
    left: Blocks  # (sessions, depth, slots, 16)
    right: Bits  # (sessions, depth, slots)

    @classmethod
    def of(cls, party: int, keys: SessionKeys, roots: Blocks, words: CorrectionWords) -> Self:
        """Return the keys of one session."""
        return cls(party, keys.block()[None], roots[None], words.left[None], words.right[None])

    @classmethod
    def together(cls, held: "Sequence[HeldKeys]") -> "HeldKeys":
        """Return the keys of several sessions of the same party and shape, for evaluation in one pass."""
        if len(held) == 1:
            return held[0]
        columns = zip(*((one.keys, one.roots, one.left, one.right) for one in held), strict=True)
        return HeldKeys(held[0].party, *(np.concatenate(column) for column in columns))

    @property
    def sessions(self) -> int:
        """Return the number of sessions."""
        return int(self.roots.shape[0])

    @property
    def slots(self) -> int:
        """Return the number of trees per session."""
        return int(self.roots.shape[1])

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return int(self.right.shape[1])


class PathSecret:
    """Both parties' nodes at the chosen leaves, as input for one call of FSS.ConvertGen.

    Two final correction words from one path would reveal the difference of their payloads to each server, so the secret
    can be taken only once and is erased then. It cannot be copied, pickled or printed.
    """

    __slots__ = ("_leaves",)

    def __init__(self, leaf0: Blocks, leaf1: Blocks) -> None:
        self._leaves: tuple[Blocks, Blocks] | None = (leaf0, leaf1)

    def __repr__(self) -> str:
        return f"<PathSecret {'spent' if self._leaves is None else 'unspent'}>"

    def __reduce__(self) -> NoReturn:
        raise PathSpentError("a path secret is single-use and cannot be copied or stored")

    @property
    def spent(self) -> bool:
        """Return whether the secret has been used."""
        return self._leaves is None

    def spend(self) -> tuple[Blocks, Blocks]:
        """Return the nodes and erase them; raise `PathSpentError` the second time."""
        if self._leaves is None:
            raise PathSpentError("this path has already been used; resend the same bytes or start a new session")
        leaves, self._leaves = self._leaves, None
        return leaves


def control_bits(nodes: Blocks) -> Bits:
    """Return t of every node."""
    bits: Bits = nodes[..., 0] & np.uint8(1)
    return bits


def root_nodes(roots: Blocks, party: int) -> Blocks:
    """Return the roots with the control bit that party b starts with: t_b = b."""
    return roots & SEED_BITS | np.uint8(party) * LOWEST_BIT


def with_control(seeds: Blocks, bits: Bits) -> Blocks:
    """Return the blocks with their lowest bit set to `bits`."""
    return seeds & SEED_BITS | bits[..., None] * LOWEST_BIT


def _where(bits: Bits, one: Blocks, zero: Blocks) -> Blocks:
    return np.where(bits[..., None] == 1, one, zero)


def path_gen(
    keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
) -> tuple[CorrectionWords, Blocks, Blocks]:
    """FSS.PathGen for many slots at once: correction words, and both parties' nodes at the leaves `alpha`."""
    nodes = [root_nodes(roots0, 0), root_nodes(roots1, 1)]
    left_words = np.empty((depth, alpha.size, BLOCK), dtype=np.uint8)
    right_bits = np.empty((depth, alpha.size), dtype=np.uint8)
    for level in range(depth):
        goes_right = (alpha >> (depth - 1 - level) & 1).astype(np.uint8)
        lefts = [hash_blocks(keys.left, node & SEED_BITS) for node in nodes]
        rights = [hash_blocks(keys.right, node & SEED_BITS) for node in nodes]
        both_left, both_right = lefts[0] ^ lefts[1], rights[0] ^ rights[1]
        lost = _where(goes_right, both_left, both_right)
        left_words[level] = with_control(lost, control_bits(both_left) ^ goes_right ^ np.uint8(1))
        right_bits[level] = control_bits(both_right) ^ goes_right
        right_word = with_control(lost, right_bits[level])
        kept_word = _where(goes_right, right_word, left_words[level])
        nodes = [
            _where(goes_right, right, left) ^ control_bits(node)[:, None] * kept_word
            for node, left, right in zip(nodes, lefts, rights, strict=True)
        ]
    return CorrectionWords(left_words, right_bits), nodes[0], nodes[1]


def path_eval(held: HeldKeys, leaf: int) -> Blocks:
    """FSS.PathEval of one leaf in every slot of one session: (slots, 16) nodes.

    The else branch in the paper says "left" again. This is a mistake: it must be the right child, as here.
    """
    left_key, right_key, _ = (bytes(key) for key in held.keys[0])
    nodes = root_nodes(held.roots[0], held.party)
    for level in range(held.depth):
        left_word = held.left[0, level]
        if leaf >> (held.depth - 1 - level) & 1:
            word = with_control(left_word, held.right[0, level])
            children = hash_blocks(right_key, nodes & SEED_BITS)
        else:
            word, children = left_word, hash_blocks(left_key, nodes & SEED_BITS)
        nodes = children ^ control_bits(nodes)[:, None] * word
    return nodes
