"""Which versions of a model are kept: the newest, ever fewer further back, and fewer still on a small disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_party.storage.retention import FEWEST, choose_kept


def run(rounds: int, keep: int) -> list[int]:
    """Return what is kept after so many rounds, each followed by a pruning."""
    held: list[int] = []
    for version in range(rounds + 1):
        held = sorted(choose_kept([*held, version], keep=keep))
    return held


@given(st.integers(0, 600), st.integers(1, 60))
def test_the_newest_stay_and_the_first_and_two_of_each_doubling(rounds: int, keep: int) -> None:
    held = run(rounds, keep)
    assert set(range(max(0, rounds - keep + 1), rounds + 1)) <= set(held)
    assert 0 in held
    for bits in range(1, 11):
        older = [one for one in held if keep <= rounds - one and (rounds - one).bit_length() == bits]
        assert len(older) <= 2
    assert len(held) <= keep + 2 * 11


@given(st.integers(0, 600), st.integers(1, 60))
def test_pruning_after_each_round_keeps_the_same_as_pruning_once(rounds: int, keep: int) -> None:
    assert run(rounds, keep) == sorted(choose_kept(range(rounds + 1), keep=keep))


def test_there_is_a_version_of_about_every_age() -> None:
    held = run(5000, 50)
    for age in (50, 100, 200, 500, 1000, 2000, 4000):
        assert any(age / 2 <= 5000 - one <= 2 * age for one in held), age


def test_a_disk_that_is_small_keeps_fewer_and_never_less_than_the_newest_three() -> None:
    versions = list(range(200))
    whole = choose_kept(versions, keep=50)
    assert choose_kept(versions, keep=50, size=lambda _: 10, room=10 * len(whole)) == whole
    some = choose_kept(versions, keep=50, size=lambda _: 10, room=10 * len(whole) - 1)
    assert 3 < len(some) < len(whole)
    for room in (0, 29):
        least = choose_kept(versions, keep=50, protect=[7, 999], size=lambda _: 10, room=room)
        assert least == {7, 197, 198, 199}
    assert choose_kept(versions, keep=1, size=lambda _: 10, room=0) == {199}
    assert FEWEST == 3


def test_what_is_protected_stays() -> None:
    assert choose_kept(range(200), keep=1, protect=[101, 999]) >= {101}


def test_a_store_keeps_its_latest_version() -> None:
    with pytest.raises(ValueError, match="latest"):
        choose_kept([1], keep=0)
    assert choose_kept([], keep=3) == set()
