"""What a device brings to a round, and what it measures there."""

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from tests.unit.sessions import make_round, make_task

from secemb_sdk.models import Floats, Model
from secemb_sdk.round.selection import HoldOut, Selection, select
from secemb_sdk.round.session import SeededBytes, session_id_of
from secemb_sdk.round.upload import measure
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.randomness import Indices, secure_bytes

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
    assert {one.unknown for one in found.values()} == {len(ratings) - len(known)}
    assert set(found[TRAIN].items.tolist()) == known - held
    assert set(found[SURVEY].items.tolist()) == known
    evaluated = found[EVALUATE]
    rated = ~np.isnan(evaluated.values)
    assert set(evaluated.items[rated].tolist()) <= held
    assert rated[0]
    assert not set(evaluated.items[~rated].tolist()) & known
    assert evaluated.items.size <= 8


def test_ratings_come_in_the_order_of_the_items_that_are_asked_for() -> None:
    selection = Selection(items=np.array([9, 2, 5]), values=np.array([1, 2, 3], np.float32), unknown=0)
    ratings = selection.ratings_of(np.array([5, 9]))
    assert ratings.values.tolist() == [3.0, 1.0]


# Evaluations.


class Scores:
    """A model that scores each item with its row's first number."""

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        return rows[:, 0]


def measured(scores: list[float], values: list[float], *, placed: slice = slice(None)) -> list[float]:
    items = np.arange(len(scores), dtype=np.int64) * 3
    selection = Selection(items=items, values=np.array(values, np.float32), unknown=0)
    rows = np.array(scores, np.float32)[placed, None]
    none = np.zeros(0, np.float32)
    model = cast(Model, Scores())
    return [float(value) for value in measure(model, none, selection, items[placed], rows, none)]


def test_errors_are_those_of_rated_items() -> None:
    assert measured([3.0, 1.0, 9.0], [5.0, 2.0, math.nan])[:3] == [2.0, 5.0, 3.0]


@pytest.mark.parametrize(("place", "hit"), [(0, True), (1, True), (9, True), (10, False), (15, False)])
def test_a_hit_is_a_place_among_the_first_ten(place: int, hit: bool) -> None:
    strangers = [2.0] * place + [0.0] * (20 - place)
    gain = 1 / math.log2(place + 2) if hit else 0.0
    assert measured([1.0, *strangers], [4.0, *[math.nan] * 20])[3:] == [1.0, float(hit), pytest.approx(gain)]


def test_a_tie_is_no_advantage() -> None:
    assert measured([1.0] * 12, [4.0, *[math.nan] * 11])[3:] == [1.0, 0.0, 0.0]


def test_without_strangers_or_without_its_item_there_is_no_ranking() -> None:
    assert measured([1.0], [4.0])[3:] == [0.0, 0.0, 0.0]
    assert measured([1.0, 2.0], [4.0, math.nan], placed=slice(1, None))[3:] == [0.0, 0.0, 0.0]
    assert measured([], []) == [0.0] * 6
