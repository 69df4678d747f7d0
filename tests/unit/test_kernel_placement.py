"""The kernel permutes and matches as the definitions do, and refuses what would leave its buffers."""

from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import Engine

from secemb_shared import kernel
from secemb_shared.kernel import instruction_sets, native_available
from secemb_shared.layout import Permutation
from secemb_shared.layout.geometry import MOST_ITEMS
from secemb_shared.layout.placement import match

if native_available():
    from secemb_shared import _kernel

pytestmark = pytest.mark.skipif(not native_available(), reason="the C kernel was not built")

SIDES = st.one_of(st.integers(1, 300), st.integers(1, isqrt(MOST_ITEMS)))
# Catalogues around squares and rectangles, where the sides of the permutation change.
CATALOGUES = st.builds(lambda side, more: min(max(1, side * side + more), MOST_ITEMS), SIDES, st.integers(-2, 400))


@given(CATALOGUES, st.binary(min_size=16, max_size=16), st.booleans(), st.data())
def test_the_kernel_permutes_as_the_definition_does(
    items: int, key: bytes, backwards: bool, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, items - 1), max_size=40))
    values = np.array([0, items - 1, *chosen], dtype=np.int64)
    expected = Permutation(items, key).walk(values, backwards=backwards)
    assert np.array_equal(kernel.permute(key, values, items=items, backwards=backwards), expected)


def test_a_whole_catalogue_is_permuted_alike_by_every_instruction_set() -> None:
    values, key = np.arange(10_681, dtype=np.int64), bytes(range(16))
    for backwards in (False, True):
        expected = Permutation(values.size, key).walk(values, backwards=backwards)
        for name in instruction_sets():
            with Engine(name).running():
                permuted = kernel.permute(key, values, items=values.size, backwards=backwards)
            assert np.array_equal(permuted, expected)


@given(st.integers(0, 120), st.integers(1, 5), st.integers(1, 130), st.integers(0, 2**32 - 1))
def test_the_kernel_matches_as_the_definition_does(items: int, each: int, slots: int, seed: int) -> None:
    choices = np.random.default_rng(seed).integers(0, slots, (items, each))
    assert np.array_equal(kernel.match(choices, slots), match(choices, slots))


@pytest.mark.parametrize("reverse", [False, True])
def test_long_chains_and_dead_ends_are_matched_alike(reverse: bool) -> None:
    chain = [[n, n + 1] for n in range(200)]
    crowd = [[300, 301]] * 6  # four of them find no place, and make a dead end
    choices = np.array([*crowd, *chain, [0, 0], [1, 300], [250, 301]], dtype=np.int64)
    ordered = choices[::-1] if reverse else choices
    matched = kernel.match(ordered, 302)
    assert np.array_equal(matched, match(ordered, 302))
    assert np.count_nonzero(matched == -1) >= 4


def test_the_values_given_are_kept() -> None:
    values = np.arange(10, dtype=np.int64)
    kernel.permute(bytes(16), values, items=10, backwards=False)
    assert np.array_equal(values, np.arange(10))


@pytest.mark.parametrize("value", [-1, 10, 2**32, -(2**63)])
def test_a_value_outside_the_catalogue_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="outside the catalogue"):
        kernel.permute(bytes(16), np.array([0, value], dtype=np.int64), items=10, backwards=True)


@pytest.mark.parametrize("items", [0, -1, MOST_ITEMS + 1])
def test_a_catalogue_of_an_impossible_size_is_refused(items: int) -> None:
    with pytest.raises(ValueError, match="items out of range"):
        kernel.permute(bytes(16), np.zeros(0, dtype=np.int64), items=items, backwards=False)


@pytest.mark.parametrize("key", [b"", bytes(15), bytes(17)])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="key has"):
        kernel.permute(key, np.zeros(1, dtype=np.int64), items=10, backwards=False)


@pytest.mark.parametrize("slot", [-1, 4, 2**40])
def test_a_choice_that_is_no_slot_is_refused(slot: int) -> None:
    with pytest.raises(ValueError, match="not a slot"):
        kernel.match(np.array([[0, slot]], dtype=np.int64), 4)


def test_choices_that_do_not_fit_the_items_are_refused() -> None:
    choices, slot_of = np.zeros((3, 2), dtype=np.int64), np.zeros(4, dtype=np.int64)
    for each, slots in ((2, 4), (0, 4), (2**62, 4), (2, 0), (2, 2**31)):
        with pytest.raises(ValueError, match="kernel"):
            _kernel.match(choices, each, slots, slot_of)
    with pytest.raises((TypeError, ValueError, BufferError)):
        _kernel.match(choices, 2, 4, bytes(24))
