"""Payloads at the end of a path: shares of ConvertEval add up to β at one leaf and to zero at all others."""

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import BACKENDS, EACH_BACKEND, both_keys, random_blocks, random_ring, rng_of

from secemb_shared.dpf import Backend, convert_eval, convert_gen
from secemb_shared.dpf._portable import convert
from secemb_shared.dpf.paths import SEED_BITS
from secemb_shared.ring import Ring

KEY = b"sixteen byte key"
RINGS = pytest.mark.parametrize("bits", [32, 64])
WIDTHS = pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 17, 65])


def node_of(block: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> reference.Node:
    number = int.from_bytes(block.tobytes(), "little")
    return number & ~1, number & 1


@RINGS
@WIDTHS
def test_convert_is_that_of_the_paper_by_hand(bits: int, width: int) -> None:
    nodes = random_blocks(rng_of(width), 3)
    dtype = Ring(bits, 0).dtype
    expected = [reference.convert(KEY, node_of(node)[0], width, bits) for node in nodes]
    assert convert(KEY, nodes, width, dtype).tolist() == expected


@EACH_BACKEND
@RINGS
@WIDTHS
def test_words_are_those_of_the_paper_by_hand(backend: Backend, bits: int, width: int) -> None:
    rng = rng_of(width)
    leaf0, leaf1 = random_blocks(rng, 6), random_blocks(rng, 6)
    payload = random_ring(rng, (6, width), bits)
    words = backend.convert_gen(KEY, leaf0, leaf1, payload)
    for slot in range(6):
        nodes = [node_of(leaf0[slot]), node_of(leaf1[slot])]
        assert words[slot].tolist() == reference.convert_gen(KEY, nodes, payload[slot].tolist(), bits)


@RINGS
@WIDTHS
def test_shares_are_those_of_the_paper_by_hand(bits: int, width: int) -> None:
    rng = rng_of(width)
    nodes, words = random_blocks(rng, 6), random_ring(rng, width, bits)
    for party in (0, 1):
        shares = convert_eval(KEY, party, nodes, words).tolist()
        for node, share in zip(nodes, shares, strict=True):
            assert share == reference.convert_eval(KEY, party, node_of(node), words.tolist(), bits)


@EACH_BACKEND
@RINGS
@pytest.mark.parametrize("depth", [0, 1, 3, 9])
def test_shares_add_up_for_every_leaf(backend: Backend, bits: int, depth: int) -> None:
    rng, slots, width = rng_of(depth), 9, 5
    alpha = rng.integers(0, 2**depth, size=slots)
    held0, held1, leaf0, leaf1 = both_keys(backend, alpha, depth)
    payload = random_ring(rng, (slots, width), bits)
    payload[0] = 0  # padding
    words = backend.convert_gen(KEY, leaf0, leaf1, payload)
    shares = [
        convert_eval(KEY, party, backend.expand(held, 2**depth), words) for party, held in enumerate((held0, held1))
    ]
    expected = np.zeros((2**depth, slots, width), dtype=payload.dtype)
    expected[alpha, np.arange(slots)] = payload
    assert np.array_equal(shares[0] + shares[1], expected)


def test_both_signs_of_the_word_occur_and_both_are_right() -> None:
    """(−1)^t₁ matters: with the sign left out about half of all slots would add noise."""
    backend, slots = BACKENDS[0], 64
    alpha = rng_of(1).integers(0, 8, size=slots)
    held0, held1, leaf0, leaf1 = both_keys(backend, alpha, 3)
    payload = random_ring(rng_of(2), (slots, 1), 32)
    words = convert_gen(KEY, leaf0, leaf1, payload)
    unsigned = payload - convert(KEY, leaf0, 1, payload.dtype) + convert(KEY, leaf1, 1, payload.dtype)
    wrong = (words != unsigned).sum()
    assert 16 < wrong < 48
    shares = [convert_eval(KEY, party, backend.expand(held, 8), unsigned) for party, held in enumerate((held0, held1))]
    assert ((shares[0] + shares[1])[alpha, np.arange(slots)] != payload).sum() == wrong


def test_convert_reads_the_seed_and_not_the_control_bit() -> None:
    nodes = random_blocks(rng_of(3), 20)
    for flipped in (nodes & SEED_BITS, nodes | np.uint8(1) * (SEED_BITS == 0xFE)):
        assert np.array_equal(
            convert(KEY, nodes, 9, np.dtype(np.uint32)), convert(KEY, flipped, 9, np.dtype(np.uint32))
        )


def test_a_longer_row_begins_like_a_shorter_one() -> None:
    nodes = random_blocks(rng_of(4), 20)
    long, short = (convert(KEY, nodes, width, np.dtype(np.uint64)) for width in (33, 7))
    assert np.array_equal(long[:, :7], short)


def test_two_words_from_one_path_reveal_the_difference_of_the_payloads() -> None:
    """Why a path is spent once: this is what either server could compute, up to the sign."""
    *_, leaf0, leaf1 = both_keys(BACKENDS[0], rng_of(5).integers(0, 8, size=40), 3)
    one, other = random_ring(rng_of(6), (2, 40, 3), 32)
    difference = convert_gen(KEY, leaf0, leaf1, one) - convert_gen(KEY, leaf0, leaf1, other)
    plain = one - other
    assert ((difference == plain).all(axis=1) | (difference == -plain).all(axis=1)).all()
