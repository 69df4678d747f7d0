"""What a device brings to a round."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sessions import make_round, make_task

from secemb_sdk.round.selection import HoldOut, Selection, select
from secemb_sdk.round.session import SeededBytes, session_id_of
from secemb_shared.messages.measures import count_strangers
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.randomness import secure_bytes

# Seeds.


def test_a_seed_gives_the_same_bytes_however_they_are_asked_for() -> None:
    seed = bytes(range(32))
    whole, pieces = SeededBytes(seed), SeededBytes(seed)
    assert whole(100) == b"".join(pieces(count) for count in (16, 1, 0, 50, 33))
    assert session_id_of(seed) == SeededBytes(seed)(16)
    assert SeededBytes(bytes(32))(64) != SeededBytes(seed)(64)
    assert repr(whole) == "<SeededBytes>"


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SeededBytes(bytes(length))


# Selections.


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9])
def test_about_the_right_fraction_is_held_out_and_stays_held_out(fraction: float) -> None:
    hold_out = HoldOut(key=bytes(32), fraction=fraction)
    held = {item for item in range(4000) if item in hold_out}
    assert abs(len(held) / 4000 - fraction) < 0.04
    more = HoldOut(key=bytes(32), fraction=min(1.0, fraction + 0.05))
    assert held <= {item for item in range(4000) if item in more}
    other = HoldOut(key=bytes(31) + b"1", fraction=fraction)
    assert fraction == 0.0 or held != {item for item in range(4000) if item in other}


def test_each_kind_of_round_gets_its_own_items() -> None:
    round_ = make_round(make_task(items=37, capacity=8))
    ratings = {item: float(item) for item in range(0, 50, 2)}
    hold_out = HoldOut(key=bytes(32), fraction=0.4)
    known = {item for item in ratings if item < 37}
    held = {item for item in known if item in hold_out}
    found = {
        kind: select(replace(round_, kind=kind), ratings, hold_out, secure_bytes) for kind in (TRAIN, SURVEY, EVALUATE)
    }
    assert {one.left_out for one in found.values()} == {len(ratings) - len(known)}
    assert set(found[TRAIN].items.tolist()) == known - held
    assert set(found[SURVEY].items.tolist()) == known
    assert not any(one.held_out.any() for kind, one in found.items() if kind != EVALUATE)
    evaluated = found[EVALUATE]
    strangers = np.isnan(evaluated.values)
    assert set(evaluated.items[evaluated.held_out].tolist()) <= held
    assert not set(evaluated.items[strangers].tolist()) & known
    assert set(evaluated.items[~strangers & ~evaluated.held_out].tolist()) <= known - held


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 8, 33, 90, 500])
@pytest.mark.parametrize("rated", [1, 12, 3000])
def test_an_evaluation_measures_with_half_of_its_room_at_most(capacity: int, rated: int) -> None:
    round_ = replace(make_round(make_task(items=20_000, capacity=capacity)), kind=EVALUATE)
    ratings = dict.fromkeys(range(rated), 4.0)
    # Of four items drawn for one stranger, all may be rated: once in two thousand selections, but never with this seed.
    found = select(round_, ratings, HoldOut(key=bytes(32), fraction=0.5), SeededBytes(bytes(32)))
    held = sum(item in HoldOut(key=bytes(32), fraction=0.5) for item in ratings)
    strangers = int(np.isnan(found.values).sum())
    assert len(set(found.items.tolist())) == found.items.size <= capacity
    if not held:
        assert found.items.size == 0
        return
    assert strangers == min(100, capacity // 3) == count_strangers(capacity)
    assert found.held_out.sum() == min(held, max(1, capacity // 2 - strangers))
    assert found.items.size == min(capacity, int(found.held_out.sum()) + strangers + rated - held)


def test_ratings_come_in_the_order_of_the_items_that_are_asked_for() -> None:
    selection = Selection(
        items=np.array([9, 2, 5]),
        values=np.array([1, 2, 3], np.float32),
        held_out=np.array([True, False, False]),
        left_out=0,
    )
    ratings = selection.ratings_of(np.array([5, 9]))
    assert ratings.values.tolist() == [3.0, 1.0]
    assert selection.are_held_out(np.array([5, 9])).tolist() == [False, True]
