"""Splits: nothing is lost or doubled, each keeps what its name says, and small ones are those worked out by hand."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.made_up_ratings import made_up_ratings

from secemb_tools.datasets import (
    DatasetError,
    RatingSet,
    Split,
    read_ratings,
    split_by,
    split_by_time,
    split_given,
    split_leave_last_out,
    split_per_user,
)
from secemb_tools.datasets.splits import WAYS, write_split

RATINGS = made_up_ratings(people=40, items=60, count=900)
TIMED = replace(
    RATINGS,
    times=np.random.default_rng(1).permutation(RATINGS.values.size),
    tested=np.random.default_rng(2).random(RATINGS.values.size) < 0.3,
)


def pairs(ratings: RatingSet) -> set[tuple[int, int]]:
    return set(zip(ratings.people.tolist(), ratings.items.tolist(), strict=True))


def per_person(ratings: RatingSet) -> list[int]:
    return [int(count) for count in np.bincount(ratings.people, minlength=ratings.person_count)]


def rating_set(rows: list[tuple[int, int, int]], *, timed: bool = True) -> RatingSet:
    """Return interactions (person, item, time), which lie in this order in their file."""
    people, items, times = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return RatingSet(
        name="small",
        people=people,
        items=items,
        values=(np.arange(len(rows)) % 5 + 1).astype(np.float32),
        user_features=np.zeros((int(people.max()) + 1, 0), dtype=np.uint8),
        item_features=np.zeros((int(items.max()) + 1, 0), dtype=np.uint8),
        times=times if timed else None,
        order=None if timed else np.arange(len(rows)),
        tested=times % 3 == 0,
    )


ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 30)),
    min_size=1,
    max_size=60,
    unique_by=lambda r: r[:2],
)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_or_doubled_and_a_seed_decides(way: str) -> None:
    one, same, other = (split_by(way, TIMED, seed=seed) for seed in (1, 1, 2))
    assert not pairs(one.train) & pairs(one.test)
    assert pairs(one.train) | pairs(one.test) == pairs(TIMED)
    assert pairs(one.test) == pairs(same.test)
    assert (pairs(one.test) != pairs(other.test)) == (way in ("random", "per-user"))


@given(rows=ROWS, way=st.sampled_from(list(WAYS)), share=st.floats(0.05, 0.95), seed=st.integers(0, 9))
def test_any_split_of_any_set_is_disjoint_complete_and_of_its_size(
    rows: list[tuple[int, int, int]], way: str, share: float, seed: int
) -> None:
    ratings = rating_set(rows)
    parts = split_by(way, ratings, seed=seed, test_share=share)
    assert sorted(pairs(parts.train)) + sorted(pairs(parts.test)) != []
    assert not pairs(parts.train) & pairs(parts.test)
    assert parts.train.values.size + parts.test.values.size == len(rows)
    values = {(person, item): place % 5 + 1 for place, (person, item, _) in enumerate(rows)}
    for part in (parts.train, parts.test):
        found = zip(part.people.tolist(), part.items.tolist(), part.values.tolist(), strict=True)
        assert all(values[person, item] == value for person, item, value in found)
    assert _expected_size(parts, rows, way, share)


def _expected_size(parts: Split, rows: list[tuple[int, int, int]], way: str, share: float) -> bool:
    """Compare with sizes that are counted another way, in plain Python."""
    size: int = parts.test.values.size
    own: dict[int, int] = defaultdict(int)
    for person, _, _ in rows:
        own[person] += 1
    if way == "random":
        return size == round(share * len(rows))
    if way == "per-user":
        return size == sum(min(round(share * count), count - 1) for count in own.values())
    if way == "leave-last-out":
        return size == sum(count > 1 for count in own.values())
    if way == "given":
        return size == sum(time % 3 == 0 for _, _, time in rows)
    return size <= round(share * len(rows))


@given(rows=ROWS, timed=st.booleans())
def test_the_last_of_everyone_is_what_a_loop_finds(rows: list[tuple[int, int, int]], timed: bool) -> None:
    last: dict[int, tuple[tuple[int, int], int]] = {}
    own: dict[int, int] = defaultdict(int)
    for place, (person, item, time) in enumerate(rows):
        own[person] += 1
        when = (time if timed else place, place)
        if person not in last or when > last[person][0]:
            last[person] = when, item
    expected = {(person, item) for person, (_, item) in last.items() if own[person] > 1}
    assert pairs(split_leave_last_out(rating_set(rows, timed=timed)).test) == expected


@given(rows=ROWS, share=st.floats(0.05, 0.95))
def test_a_split_by_time_has_no_test_before_the_end_of_training(rows: list[tuple[int, int, int]], share: float) -> None:
    parts = split_by_time(rating_set(rows), test_share=share)
    assert parts.train.times is not None
    assert parts.test.times is not None
    assert parts.train.times.size
    assert not parts.test.times.size or parts.train.times.max() < parts.test.times.min()


#         person, item, time
BY_HAND = [(0, 0, 50), (0, 1, 10), (0, 2, 30), (1, 0, 20), (1, 2, 20), (2, 1, 60), (0, 3, 40)]


@pytest.mark.parametrize(
    ("how", "timed", "share", "test"),
    [
        ("leave-last-out", True, 0.2, {(0, 0), (1, 2)}),  # of the two at 20 the later in the file
        ("leave-last-out", False, 0.2, {(0, 3), (1, 2)}),
        ("by-time", True, 0.3, {(0, 0), (2, 1)}),  # round(0.3 · 7) = 2: after 40
        ("by-time", True, 0.5, {(0, 0), (2, 1), (0, 3), (0, 2)}),  # round(0.5 · 7) = 4: after 20
        ("by-time", True, 0.7, {(0, 0), (2, 1), (0, 3), (0, 2)}),  # round(0.7 · 7) = 5, but both at 20 or neither
        ("given", True, 0.2, {(0, 2), (2, 1)}),  # times that three divides
    ],
)
def test_a_small_set_is_split_as_by_hand(how: str, timed: bool, share: float, test: set[tuple[int, int]]) -> None:
    assert pairs(split_by(how, rating_set(BY_HAND, timed=timed), test_share=share).test) == test


def test_what_is_equally_late_stays_together() -> None:
    rows = [(0, item, time) for item, time in enumerate([1, 2, 2, 2, 3])]
    assert pairs(split_by_time(rating_set(rows), test_share=0.4).test) == {(0, 4)}
    assert pairs(split_by_time(rating_set(rows), test_share=0.8).test) == {(0, 1), (0, 2), (0, 3), (0, 4)}


def test_the_order_of_the_file_outlives_a_choice_of_people() -> None:
    ratings = rating_set(BY_HAND, timed=False)
    some = ratings.only(np.flatnonzero(ratings.people < 2))
    assert pairs(split_leave_last_out(some).test) == {(0, 3), (1, 2)}


def test_per_user_takes_the_same_share_of_everybody() -> None:
    parts = split_per_user(RATINGS, seed=1, test_share=0.25)
    assert per_person(parts.test) == [round(0.25 * count) for count in per_person(RATINGS)]


def test_leave_last_out_takes_the_last_in_time() -> None:
    parts = split_leave_last_out(TIMED)
    assert per_person(parts.test) == [1] * 40
    assert parts.test.times is not None
    assert parts.train.times is not None
    for person, last in zip(parts.test.people, parts.test.times, strict=True):
        assert (parts.train.times[parts.train.people == person] < last).all()


@pytest.mark.parametrize("way", ["per-user", "leave-last-out"])
def test_whoever_has_one_rating_trains_on_it(way: str) -> None:
    parts = split_by(way, RATINGS.only(np.array([0])))
    assert parts.train.values.size == 1
    assert parts.test.values.size == 0


def test_a_split_that_the_set_cannot_have_is_refused_with_another() -> None:
    with pytest.raises(DatasetError, match="no times; use the split per-user or leave-last-out"):
        split_by_time(RATINGS)
    with pytest.raises(DatasetError, match="no split of its own; give a directory with train and test files"):
        split_given(RATINGS)
    with pytest.raises(DatasetError, match="choose one of random, per-user, leave-last-out, by-time, given"):
        split_by("sideways", RATINGS)
    with pytest.raises(DatasetError, match="choose one between 0 and 1"):
        split_by("random", RATINGS, test_share=1.0)


def test_a_split_that_was_written_is_read_again_under_the_same_ids(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("user,item,title,rating,time\nann,x,Ex,1,5\nann,y,Why,2,6\nbob,x,Ex,4.5,7\nbob,z,Zed,3,8\n")
    facts = write_split(read_ratings(table), tmp_path / "parts", how="leave-last-out", seed=1, test_share=0.2)
    assert (facts["train"], facts["test"]) == (2, 2)
    again = read_ratings(tmp_path / "parts")
    assert [again.catalogue.title_of(row) for row in range(3)] == ["Ex", "Why", "Zed"]
    assert dict(again.catalogue.others) == {}
    assert again.user_ids == ("ann", "bob")
    assert again.tested is not None
    assert sorted(again.values[again.tested].tolist()) == [2.0, 3.0]
    with pytest.raises(DatasetError, match="not be overwritten"):
        write_split(again, tmp_path / "parts", how="given", seed=1, test_share=0.2)
