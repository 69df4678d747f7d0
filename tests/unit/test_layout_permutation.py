"""The public permutation: a bijection, as its docstring defines it, without visible bias."""

from collections.abc import Callable
from math import ceil, sqrt

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2

from secemb_shared.errors import LayoutError
from secemb_shared.layout import Permutation
from secemb_shared.randomness import Indices

KEY = bytes(range(16))
Deal = Callable[[Indices], Indices]
KNOWN = [15, 19, 17, 16, 1, 11, 4, 9]


def read_from_the_docstring(items: int, key: bytes, value: int) -> int:
    """Permute one value by the letter of the definition, in plain integers."""
    a = ceil(sqrt(items))
    b = ceil(items / a)
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = b"".join(encryptor.update(n.to_bytes(16, "little")) for n in range(3 * (a + b) // 4 + 1))
    words = [int.from_bytes(stream[i : i + 4], "little") for i in range(0, len(stream), 4)]
    tables = []
    for number in range(6):
        size, modulus = (b, a) if number % 2 == 0 else (a, b)
        tables.append([word % modulus for word in words[:size]])
        words = words[size:]
    while True:
        left, right = divmod(value, b)
        for number, table in enumerate(tables):
            if number % 2 == 0:
                left = (left + table[right]) % a
            else:
                right = (right + table[left]) % b
        value = left * b + right
        if value < items:
            return value


def everything(items: int) -> Indices:
    return np.arange(items, dtype=np.int64)


@pytest.mark.parametrize("items", [1, 2, 3, 7, 50, 101])
def test_it_is_what_the_docstring_defines(items: int) -> None:
    expected = [read_from_the_docstring(items, KEY, value) for value in range(items)]
    assert Permutation(items, KEY).forward(everything(items)).tolist() == expected


def test_it_does_not_change_from_version_to_version() -> None:
    assert Permutation(20, KEY).forward(everything(8)).tolist() == KNOWN


def check_bijection(items: int) -> None:
    permutation = Permutation(items, KEY)
    dealt = permutation.forward(everything(items))
    assert dealt.dtype == np.int64
    assert np.array_equal(np.sort(dealt), everything(items))
    assert np.array_equal(permutation.inverse(dealt), everything(items))
    assert np.array_equal(permutation.forward(permutation.inverse(everything(items))), everything(items))


def test_every_small_catalogue_is_permuted_and_restored() -> None:
    for items in range(1, 201):
        check_bijection(items)


@pytest.mark.parametrize("items", [1682, 3883, 10_681, 62_423, 93_386, 2**16, 317**2, 317**2 + 1, 317 * 318 + 1])
def test_every_large_catalogue_is_permuted_and_restored(items: int) -> None:
    check_bijection(items)


def test_the_largest_catalogue_takes_single_items() -> None:
    permutation = Permutation(2**31 - 1, KEY)
    values = np.array([0, 1, 2**30, 2**31 - 2], dtype=np.int64)
    assert np.array_equal(permutation.inverse(permutation.forward(values)), values)


def test_shapes_are_kept_and_nothing_is_something() -> None:
    permutation = Permutation(100, KEY)
    assert permutation.forward(everything(60).reshape(3, 20)).shape == (3, 20)
    assert permutation.forward(everything(0)).size == 0


def test_keys_give_different_permutations() -> None:
    first, second = (Permutation(1000, bytes([key]) * 16).forward(everything(1000)) for key in (1, 2))
    assert np.count_nonzero(first == second) < 20


@pytest.mark.parametrize(("items", "key"), [(0, KEY), (2**31, KEY), (10, KEY[:15]), (10, KEY + b"0")])
def test_impossible_permutations_are_refused(items: int, key: bytes) -> None:
    with pytest.raises(LayoutError):
        Permutation(items, key)


@pytest.mark.parametrize("value", [-1, 10])
def test_values_outside_the_catalogue_are_refused(value: int) -> None:
    with pytest.raises(LayoutError):
        Permutation(10, KEY).forward(np.array([value], dtype=np.int64))


def looks_random(deals: list[Deal], items: int, bins: int) -> bool:
    """Say whether structured sets of items spread over the bins as chance would spread them (two-sided, 1 in 10^4)."""
    low, high = chi2.ppf([0.5e-4, 1 - 0.5e-4], bins - 1)
    for chosen in (everything(100), everything(items)[:: items // 100][:100], everything(items)[-100:]):
        counts = np.bincount(np.concatenate([deal(chosen) % bins for deal in deals]), minlength=bins)
        mean = len(deals) * 100 / bins
        spread = 1 - 99 / (items - 1)  # drawn without replacement
        if not low < ((counts - mean) ** 2 / (mean * spread)).sum() < high:
            return False
    return True


@pytest.mark.parametrize(("items", "bins"), [(1700, 17), (10_000, 50), (90_000, 100)])
def test_structured_sets_spread_over_the_bins_like_random_ones(items: int, bins: int) -> None:
    keys = [number.to_bytes(16, "little") for number in range(200)]
    assert looks_random([Permutation(items, key).forward for key in keys], items, bins)
    assert not looks_random([lambda values: values] * 200, items, bins)


def test_two_neighbours_share_a_bin_as_often_as_chance_has_it() -> None:
    pair, bins, keys = everything(2), 10, 4000
    dealt = [Permutation(1000, key.to_bytes(16, "big")).forward(pair) % bins for key in range(keys)]
    together = sum(int(first == second) for first, second in dealt)
    chance = 99 / 999
    assert abs(together - keys * chance) < 4 * sqrt(keys * chance * (1 - chance))


@pytest.mark.parametrize("items", [1, 2, 7, 100, 3883, 10_007])
def test_few_items_go_where_they_go_with_all_the_others(items: int) -> None:
    """A device computes single words of the stream, a server whole tables."""
    permutation, everything = Permutation(items, KEY), np.arange(items)
    goes, comes = permutation.forward(everything), permutation.inverse(everything)
    for few in (everything[:1], everything[-1:], everything[:: max(1, items // 5)]):
        assert np.array_equal(permutation.forward(few), goes[few])
        assert np.array_equal(permutation.inverse(few), comes[few])
