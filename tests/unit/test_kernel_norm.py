"""What the norm proof asks of the backends: projections, and what each slot adds in all, the same from all of them."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import ENGINES, both_keys, leaf_table, random_keys, random_ring, rng_of
from tests.unit.test_kernel import (
    EACH_SHAPE,
    KEY,
    PORTABLE,
    RINGS,
    SHAPES,
    WIDTHS,
    Additions,
    sums_by_definition,
    words_of,
)

from secemb_shared.dpf import Backend, HeldKeys, RingArray
from secemb_shared.layout import Geometry

PROJECTIONS = 128


@pytest.fixture(params=ENGINES, ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with request.param.running() as backend:
        yield backend


def projected(key: bytes, values: list[int], bits: int) -> list[int]:
    """Return the projections of whole numbers, one entry at a time."""
    sums = [0] * PROJECTIONS
    for i, value in enumerate(values):
        plus, minus = reference.aes(key, 2 * i), reference.aes(key, 2 * i + 1)
        for k in range(PROJECTIONS):
            sums[k] += ((plus >> k & 1) - (minus >> k & 1)) * value
    return [total % 2**bits for total in sums]


@RINGS
def test_projections_agree_with_the_definition_by_hand(backend: Backend, bits: int) -> None:
    for count in (0, 1, 3, 64, 130):
        values = random_ring(rng_of(count), count, bits)
        assert backend.project(KEY, values).tolist() == projected(KEY, values.tolist(), bits), count


@RINGS
def test_projections_of_any_length_agree(backend: Backend, bits: int) -> None:
    for count in (31, 32, 63, 65, 127, 128, 255, 256, 257, 511, 4095, 4097, 21_320):
        values = random_ring(rng_of(count), count, bits)
        made = backend.project(KEY, values)
        assert made.dtype == values.dtype
        assert np.array_equal(made, PORTABLE.project(KEY, values)), count


@RINGS
def test_projections_read_values_that_are_not_side_by_side(backend: Backend, bits: int) -> None:
    values = random_ring(rng_of(1), 300, bits)
    assert np.array_equal(backend.project(KEY, values[::3]), backend.project(KEY, values[::3].copy()))


@RINGS
def test_projections_of_shares_add_up_to_that_of_the_vector(backend: Backend, bits: int) -> None:
    first, second = random_ring(rng_of(1), 1000, bits), random_ring(rng_of(2), 1000, bits)
    both = backend.project(KEY, first) + backend.project(KEY, second)
    assert np.array_equal(both, backend.project(KEY, first + second))


def test_entries_are_minus_one_zero_and_one_with_their_probabilities(backend: Backend) -> None:
    count = 400
    entries = np.stack([backend.project(KEY, unit(count, i)) for i in range(count)]).view(np.int32)
    shares = [float(np.mean(entries == value)) for value in (-1, 0, 1)]
    assert np.abs(np.array(shares) - [0.25, 0.5, 0.25]).max() < 6 * np.sqrt(0.25 / entries.size)
    products = entries[:, :, None] * entries[:, None, :]  # of two projections, which are independent
    apart = ~np.eye(PROJECTIONS, dtype=bool)
    assert np.abs(products.mean(axis=0)[apart]).max() < 6 * np.sqrt(0.25 / count)


def unit(count: int, at: int) -> RingArray:
    values = np.zeros(count, dtype=np.uint32)
    values[at] = 1
    return values


@EACH_SHAPE
@RINGS
def test_slot_sums_agree(backend: Backend, geometry: Geometry, bits: int) -> None:
    for party in (0, 1):
        check_slot_sums(backend, Additions(geometry, sessions=3, party=party, width=5, bits=bits))


@RINGS
@pytest.mark.parametrize("width", WIDTHS)
def test_slot_sums_of_every_width_agree(backend: Backend, width: int, bits: int) -> None:
    for name in ("three slots, odd leaves", "short bins", "bins with five slots", "three slots, two chunks"):
        check_slot_sums(backend, Additions(SHAPES[name], sessions=2, party=1, width=width, bits=bits))


def check_slot_sums(backend: Backend, additions: Additions) -> None:
    """Compare both ways to get them with the definition, and the items' sums with those of a pass without them."""
    leaves = additions.geometry.leaves
    expected = PORTABLE.slot_sums(additions.held, leaves, additions.words)
    sums, slot_sums = additions.before.copy(), np.full_like(additions.words, 7)
    backend.accumulate(additions.held, additions.table, additions.words, sums, slot_sums)
    assert np.array_equal(slot_sums, expected)
    assert np.array_equal(sums, sums_by_definition(additions))
    assert np.array_equal(backend.slot_sums(additions.held, leaves, additions.words), expected)


@RINGS
def test_slot_sums_count_every_leaf_by_hand_also_those_of_short_bins(backend: Backend, bits: int) -> None:
    for party in (0, 1):
        additions = Additions(SHAPES["short bins"], sessions=2, party=party, width=6, bits=bits)
        held, geometry = additions.held, additions.geometry
        assert (additions.table.order < 0).any()
        expected = np.zeros_like(additions.words)
        for session, slot, leaf in np.ndindex(additions.sessions, geometry.slots, geometry.leaves):
            left, right, convert = (key.tobytes() for key in held.keys[session])
            root = int.from_bytes(held.roots[session, slot].tobytes(), "little")
            node = reference.path_eval(left, right, party, root, words_of(held, session, slot), leaf)
            words = additions.words[session, slot].tolist()
            expected[session, slot] += np.array(
                reference.convert_eval(convert, party, node, words, bits), expected.dtype
            )
        assert np.array_equal(backend.slot_sums(held, geometry.leaves, additions.words), expected)


@RINGS
@pytest.mark.parametrize("leaves", [1, 2, 3, 47, 64, 300])
def test_both_parties_slot_sums_add_up_to_the_payload(backend: Backend, leaves: int, bits: int) -> None:
    slots, depth, rng = 9, (leaves - 1).bit_length(), rng_of(leaves)
    held0, held1, leaf0, leaf1 = both_keys(backend, rng.integers(0, leaves, slots), depth, seed=leaves)
    payload = random_ring(rng, (slots, 7), bits)
    words = backend.convert_gen(held0.keys[0, 2].tobytes(), leaf0, leaf1, payload)[None]
    shares = [backend.slot_sums(held, leaves, words)[0] for held in (held0, held1)]
    assert np.array_equal(shares[0] + shares[1], payload)
    assert not np.array_equal(shares[0], payload)


def test_a_batch_gives_each_session_its_own_slot_sums(backend: Backend) -> None:
    geometry = SHAPES["bins with five slots"]
    held, words = random_keys(geometry, 4, 0, rng_of(5)), random_ring(rng_of(6), (4, geometry.slots, 3), 32)
    together = backend.slot_sums(held, geometry.leaves, words)
    table, sums = leaf_table(geometry, rng_of(7)), np.zeros((geometry.items, 3), dtype=np.uint32)
    for session in range(4):
        some = slice(session, session + 1)
        one = HeldKeys(0, held.keys[some], held.roots[some], held.left[some], held.right[some])
        alone = np.empty_like(words[some])
        backend.accumulate(one, table, words[some], sums, alone)
        assert np.array_equal(alone[0], together[session])
