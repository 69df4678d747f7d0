"""Paths of the point-function sharing: the two parties differ at one leaf, and a secret is spent once."""

import copy
import pickle

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import BACKENDS, EACH_BACKEND, both_keys, ids, random_blocks, rng_of

from secemb_shared import prg
from secemb_shared.dpf import Backend, CorrectionWords, HeldKeys, PathSecret, SessionKeys, expand_roots, path_eval
from secemb_shared.dpf.paths import SEED_BITS, control_bits, path_gen, root_nodes
from secemb_shared.errors import PathSpentError
from secemb_shared.labels import Label, Purpose

DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2, 3, 5, 9])


def number(block: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    return int.from_bytes(block.tobytes(), "little")


def every_leaf(depth: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return one slot for each leaf of a shallow tree, and the borders of a deep one."""
    last = 2**depth - 1
    return np.arange(last + 1, dtype=np.int64) if depth < 6 else ids(0, 1, 255, 256, last // 2, last)


def test_aes_is_the_standard_s() -> None:
    plain = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), dtype=np.uint8).reshape(1, 16)
    assert prg.aes(bytes(range(16)), plain).tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_sigma_swaps_the_halves_and_adds_them() -> None:
    block = np.arange(16, dtype=np.uint8)
    assert prg.sigma(block).tolist() == [*range(8, 16), *(a ^ (a + 8) for a in range(8))]


def test_sigma_and_sigma_plus_one_are_permutations() -> None:
    """What makes H correlation robust: neither σ(x) nor σ(x) ⊕ x loses a bit."""
    units = np.packbits(np.eye(128, dtype=np.uint8), axis=1, bitorder="little")
    for image in (prg.sigma(units), prg.sigma(units) ^ units):
        assert rank(np.unpackbits(image, axis=1)) == 128


def rank(bits: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> int:
    """Return the rank of a matrix over GF(2)."""
    rows, found = [int("".join(map(str, row)), 2) for row in bits], 0
    while rows:
        pivot = rows.pop()
        if pivot:
            found += 1
            low = pivot & -pivot
            rows = [row ^ pivot if row & low else row for row in rows]
    return found


def test_a_stream_counts_from_anywhere() -> None:
    key = bytes(range(16))
    whole = prg.stream(key, 9)
    assert np.array_equal(prg.stream(key, 4, first=5), whole[5:])
    assert [number(block) for block in whole] == [reference.aes(key, counter) for counter in range(9)]
    assert prg.stream(key, 0).shape == (0, 16)


@EACH_BACKEND
@DEPTHS
def test_paths_are_those_of_the_paper_by_hand(backend: Backend, depth: int) -> None:
    rng = rng_of(depth)
    keys = SessionKeys(rng.bytes(16), rng.bytes(16), rng.bytes(16))
    roots0, roots1 = random_blocks(rng, 5), random_blocks(rng, 5)
    alpha = rng.integers(0, 2**depth, size=5)
    words, leaf0, leaf1 = backend.generate(keys, roots0, roots1, alpha, depth)
    for slot in range(5):
        roots = number(roots0[slot]), number(roots1[slot])
        by_hand, nodes = reference.path_gen(keys.left, keys.right, roots, int(alpha[slot]), depth)
        assert [number(block) for block in words.left[:, slot]] == [word.seed + word.left for word in by_hand]
        assert words.right[:, slot].tolist() == [word.right for word in by_hand]
        assert [number(leaf0[slot]), number(leaf1[slot])] == [seed + control for seed, control in nodes]


@EACH_BACKEND
@DEPTHS
def test_the_parties_differ_at_the_chosen_leaf_and_nowhere_else(backend: Backend, depth: int) -> None:
    alpha = every_leaf(depth)
    held0, held1, *_ = both_keys(backend, alpha, depth)
    nodes0, nodes1 = backend.expand(held0, 2**depth), backend.expand(held1, 2**depth)
    here = np.arange(2**depth)[:, None] == alpha
    assert np.array_equal(control_bits(nodes0) ^ control_bits(nodes1), here)
    same_seed = ((nodes0 ^ nodes1) & SEED_BITS == 0).all(axis=-1)
    assert np.array_equal(same_seed, ~here)


@EACH_BACKEND
@DEPTHS
def test_the_generator_ends_where_the_evaluation_ends(backend: Backend, depth: int) -> None:
    alpha = every_leaf(depth)
    held0, held1, leaf0, leaf1 = both_keys(backend, alpha, depth)
    for held, leaf in ((held0, leaf0), (held1, leaf1)):
        nodes = backend.expand(held, 2**depth)
        assert np.array_equal(nodes[alpha, np.arange(alpha.size)], leaf)


@EACH_BACKEND
@pytest.mark.parametrize(("depth", "leaves"), [(0, 1), (1, 1), (3, 8), (3, 5), (9, 257), (9, 300)])
def test_one_leaf_at_a_time_is_the_whole_slot(backend: Backend, depth: int, leaves: int) -> None:
    for held in both_keys(backend, ids(0, 2**depth - 1, 2**depth // 2), depth)[:2]:
        one_by_one = np.stack([path_eval(held, leaf) for leaf in range(leaves)])
        assert np.array_equal(one_by_one, backend.expand(held, leaves))


def test_the_right_child_is_not_the_left_one() -> None:
    """The paper's PathEval takes the left child in both branches; then half of all leaves would come twice."""
    held, *_ = both_keys(BACKENDS[0], ids(0), 3)
    nodes = np.stack([path_eval(held, leaf) for leaf in range(8)])
    assert np.unique(nodes.reshape(8, 16), axis=0).shape == (8, 16)


def test_the_lowest_bit_of_a_root_says_nothing() -> None:
    roots = random_blocks(rng_of(1), 50)
    for party in (0, 1):
        assert np.array_equal(root_nodes(roots, party), root_nodes(roots & SEED_BITS, party))
        assert (control_bits(root_nodes(roots, party)) == party).all()


def test_roots_are_the_stream_of_the_master_seed() -> None:
    label, seed = Label(bytes(32), 1, bytes(16)), b"sixteen byte key"
    roots = expand_roots(label, seed, 7)
    expected = [reference.aes(label.key(Purpose.ROOTS, seed), counter) & ~1 for counter in range(7)]
    assert [number(root) for root in roots] == expected
    assert np.array_equal(expand_roots(label, seed, 3), roots[:3])


def test_sessions_held_together_are_the_sessions_one_by_one() -> None:
    held = [both_keys(BACKENDS[0], ids(1, 2, 3), 2, seed)[0] for seed in range(4)]
    together = HeldKeys.together(held)
    assert (together.sessions, together.slots, together.depth, together.party) == (4, 3, 2, 0)
    for index, one in enumerate(held):
        assert np.array_equal(together.keys[index], one.keys[0])
        assert np.array_equal(together.roots[index], one.roots[0])
        assert np.array_equal(together.left[index], one.left[0])
        assert np.array_equal(together.right[index], one.right[0])
    assert HeldKeys.together(held[:1]) is held[0]


def make_secret() -> PathSecret:
    return PathSecret(np.full((3, 16), 171, dtype=np.uint8), np.full((3, 16), 205, dtype=np.uint8))


def test_a_path_spent_twice_raises() -> None:
    secret = make_secret()
    states = [secret.spent]
    leaf0, leaf1 = secret.spend()
    assert (int(leaf0[0, 0]), int(leaf1[0, 0])) == (171, 205)
    assert [*states, secret.spent] == [False, True]
    for _ in range(2):
        with pytest.raises(PathSpentError):
            secret.spend()


@pytest.mark.parametrize("spent", [False, True])
def test_a_path_secret_cannot_be_copied_or_stored(spent: bool) -> None:
    secret = make_secret()
    if spent:
        secret.spend()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PathSpentError):
            attempt(secret)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(PathSpentError):
            pickle.dumps([secret], protocol)


def test_a_spent_secret_holds_nothing() -> None:
    secret = make_secret()
    secret.spend()
    assert [getattr(secret, name) for name in secret.__slots__] == [None]
    assert not hasattr(secret, "__dict__")


def test_what_a_party_or_a_device_holds_is_not_printed() -> None:
    secret = make_secret()
    assert repr(secret) == str(secret) == "<PathSecret unspent>"
    assert repr([secret]) == "[<PathSecret unspent>]"
    secret.spend()
    assert repr(secret) == "<PathSecret spent>"
    held, *_ = both_keys(BACKENDS[0], ids(1, 2, 3), 2)
    words = CorrectionWords(held.left[0], held.right[0])
    assert repr(held) == str(held) == object.__repr__(held)
    assert repr(words) == str(words) == object.__repr__(words)


def test_depth_zero_has_no_words() -> None:
    keys = SessionKeys(bytes(16), bytes(16), bytes(16))
    roots0, roots1 = random_blocks(rng_of(2), 2), random_blocks(rng_of(3), 2)
    words, leaf0, leaf1 = path_gen(keys, roots0, roots1, ids(0, 0), 0)
    assert (words.depth, words.slots) == (0, 2)
    assert control_bits(leaf0).tolist() == [0, 0]
    assert control_bits(leaf1).tolist() == [1, 1]
