"""Models of events: what a round learns from, slopes of the loss, no look ahead, and the same dropout again."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import seeded
from torch import Tensor

from secemb_sdk.models import PartError, PrivateState, Ratings, Window, learn
from secemb_sdk.models.interface import SequenceModel, follows, is_solved
from secemb_sdk.models.torch import SelfAttention, Tensors
from secemb_sdk.models.torch.sequence import Dropout
from secemb_sdk.models.update import fit_private
from secemb_sdk.models.window import draw_window, newest, order
from secemb_shared.randomness import Indices

Array = npt.NDArray[Any]
ITEMS = 30
MODELS: dict[str, SequenceModel] = {"sasrec": SelfAttention(dimension=4, length=6)}
EACH_MODEL = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)

EVENTS = st.lists(st.integers(0, ITEMS - 1), max_size=40).map(lambda found: np.array(found, dtype=np.int64))


def parts(model: SequenceModel, count: int, kind: Any = np.float32, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return this many rows, a dense part and a private part."""
    rng = np.random.default_rng(seed)
    sizes = (count, model.row_width), (model.dense_size,), (model.private_size,)
    rows, dense, private = (rng.normal(0, 0.4, size).astype(kind) for size in sizes)
    return rows, dense, private


def window(model: SequenceModel, events: list[int], seed: int = 1) -> Ratings:
    return model.draw(np.array(events, dtype=np.int64), items=ITEMS, room=40, random_bytes=seeded(seed))


# What a round learns from.


@given(EVENTS, st.integers(1, 12), st.integers(0, 30), st.integers(0, 1000))
def test_a_window_is_events_in_a_row_beside_strangers(events: Indices, length: int, room: int, seed: int) -> None:
    found = draw_window(events, items=ITEMS, length=length, room=room, random_bytes=seeded(seed))
    assert found.window is not None
    places = found.window.events
    count = min(events.size, length, (room + 1) // 2)
    assert places.size == (count if count > 1 else 0)
    assert found.items.size <= max(room, 0)
    assert np.unique(found.items).size == found.items.size
    own = found.items[places].tolist()
    assert any(own == events[start : start + len(own)].tolist() for start in range(events.size + 1))
    strangers = found.window.strangers
    assert (strangers[:1] == -1).all()
    assert not set(found.items[strangers[strangers >= 0]].tolist()) & set(events.tolist())
    assert found.values.tolist() == [float(item in own) for item in found.items.tolist()]


def test_windows_are_drawn_anew_and_reach_every_event() -> None:
    events = np.arange(20, dtype=np.int64)
    found = [draw_window(events, items=ITEMS, length=5, room=9, random_bytes=seeded(seed)) for seed in range(200)]
    seen = {tuple(one.items[one.window.events].tolist()) for one in found if one.window is not None}
    assert len(seen) == 16
    assert len({one.window.seed for one in found if one.window is not None}) == 200


def test_who_has_chosen_everything_has_no_strangers_to_learn_from() -> None:
    found = draw_window(np.arange(4, dtype=np.int64), items=4, length=4, room=7, random_bytes=seeded(1))
    assert found.window is not None
    assert (found.window.strangers == -1).all()


def test_the_newest_events_are_the_last_ones_in_order() -> None:
    found = newest(np.array([7, 3, 9, 3], dtype=np.int64), 3)
    assert found.window is not None
    assert found.items.tolist() == [3, 9]
    assert found.items[found.window.events].tolist() == [3, 9, 3]


def test_an_item_that_loses_its_place_leaves_a_gap_in_the_window() -> None:
    found = order([5, 8, 5, 2], [-1, 9, 1, 9], seed=3)
    kept = found.take(np.flatnonzero(found.items != 5)[::-1])
    assert kept.window is not None
    assert kept.items.tolist() == [9, 8, 2, 1]
    assert kept.window.events.tolist() == [-1, 1, -1, 2]
    assert kept.window.strangers.tolist() == [-1, 0, 3, 0]
    assert kept.window.seed == 3


# Gradients.


def slopes(model: SequenceModel, at: list[Array], part: int, ratings: Ratings) -> Array:
    """Return the gradient of one part by central differences."""
    step, found = 1e-6, np.empty(at[part].size)
    for index in range(found.size):
        losses = []
        for sign in (1, -1):
            moved = at[part].copy().reshape(-1)
            moved[index] += sign * step
            there = [*at[:part], moved.reshape(at[part].shape), *at[part + 1 :]]
            losses.append(model.gradients(there[0], there[1], there[2], ratings).loss)
        found[index] = (losses[0] - losses[1]) / (2 * step)
    return found.reshape(at[part].shape)


@EACH_MODEL
@pytest.mark.parametrize("part", [0, 1, 2])
def test_gradients_are_the_slopes_of_the_loss(model: SequenceModel, part: int) -> None:
    ratings = window(model, [3, 8, 3, 11, 2, 20, 6])
    at = list(parts(model, ratings.items.size, np.float64))
    found = model.gradients(at[0], at[1], at[2], ratings)
    ours = (found.rows, found.dense, found.private)[part]
    theirs = slopes(model, at, part, ratings)
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max(initial=1)
    assert part == 2 or np.abs(ours).max() > 1e-3


@EACH_MODEL
def test_the_order_of_the_rows_does_not_matter_to_the_last_bit(model: SequenceModel) -> None:
    ratings = window(model, [3, 8, 3, 11, 2, 20, 6])
    rows, dense, private = parts(model, ratings.items.size)
    places = np.random.default_rng(3).permutation(ratings.items.size)
    before = model.gradients(rows, dense, private, ratings)
    after = model.gradients(rows[places], dense, private, ratings.take(places))
    assert after.loss == before.loss
    assert (after.rows == before.rows[places]).all()
    assert (after.dense == before.dense).all()
    followed = model.follow(rows[places], dense, private, ratings.take(places))
    assert (followed == model.follow(rows, dense, private, ratings)).all()


@EACH_MODEL
def test_the_same_seed_drops_the_same_numbers_and_another_seed_others(model: SequenceModel) -> None:
    ratings = window(model, [3, 8, 3, 11, 2, 20, 6])
    assert ratings.window is not None
    rows, dense, private = parts(model, ratings.items.size)
    other = replace(ratings, window=replace(ratings.window, seed=ratings.window.seed + 1))
    losses = [model.gradients(rows, dense, private, one).loss for one in (ratings, ratings, other)]
    assert losses[0] == losses[1] != losses[2]


def test_dropout_leaves_the_mean_and_drops_its_share() -> None:
    found = Dropout(0.2, 5)(torch.ones(100_000))
    assert float((found == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    assert float(found.mean()) == pytest.approx(1, abs=0.01)


# No position sees its own future.


class Clairvoyant(SelfAttention):
    """A planted fault: every position sees the mean of all events."""

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        return super().states(rows, dense, events, dropout) + rows[events, :-1].mean(dim=0)


def leaks(model: SelfAttention) -> bool:
    """Tell whether a later event changes the state after an earlier one."""
    rows, dense, private = parts(model, 8)
    named = model.named(torch.tensor(dense), torch.tensor(private))[0]
    before = model.states(torch.tensor(rows), named, torch.tensor([0, 1, 2, 3]), Dropout(0, 0))
    after = model.states(torch.tensor(rows), named, torch.tensor([0, 1, 2, 5]), Dropout(0, 0))
    assert not torch.equal(before[3], after[3])  # its own event it does see
    return not torch.equal(before[:3], after[:3])


def test_no_position_sees_a_later_event() -> None:
    assert not leaks(SelfAttention(dimension=4, length=6))


def test_a_model_that_looks_ahead_is_noticed() -> None:
    assert leaks(Clairvoyant(dimension=4, length=6))


def test_an_event_without_a_row_is_seen_by_nobody() -> None:
    model = SelfAttention(dimension=4, length=6)
    rows, dense, private = parts(model, 8)
    named = model.named(torch.tensor(dense), torch.tensor(private))[0]
    gap = torch.tensor([0, -1, 2, 3])
    before = model.states(torch.tensor(rows), named, gap, Dropout(0, 0))
    rows[1] += 1
    assert torch.equal(model.states(torch.tensor(rows), named, gap, Dropout(0, 0)), before)
    rows[0] += 1  # stands in where there is no row: only the state of the gap itself may change with it, and of no use
    changed = model.states(torch.tensor(rows), named, gap, Dropout(0, 0))
    assert not torch.equal(changed[2:], before[2:])


# Few events, and learning.


@EACH_MODEL
@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_events_are_enough_to_score_and_two_to_learn(model: SequenceModel, count: int) -> None:
    assert follows(model)
    assert not is_solved(model)
    events = np.arange(count, dtype=np.int64)
    assert window(model, events.tolist()).items.size == (3 if count == 2 else 0)
    history = newest(events, model.length)
    rows, dense, private = parts(model, 8)
    state = PrivateState(values=private, first=np.zeros_like(private), second=np.zeros_like(private))
    found = fit_private(model, state, rows[:count], dense, history).values
    assert (found == private).all() == (count == 0)
    assert np.isfinite(model.scores(rows, dense, found, np.arange(8))).all()


@EACH_MODEL
def test_more_events_than_the_model_looks_back_are_cut(model: SequenceModel) -> None:
    rows, dense, private = parts(model, 12)
    long, short = newest(np.arange(12, dtype=np.int64), 12), newest(np.arange(6, 12, dtype=np.int64), 6)
    assert (model.follow(rows, dense, private, long) == model.follow(rows[6:], dense, private, short)).all()


def test_what_was_chosen_scores_higher_after_some_steps_of_descent() -> None:
    model = SelfAttention(dimension=8, length=6, dropout=0.0)
    ratings = window(model, [3, 8, 3, 11, 2, 20, 6])
    rows, dense, private = parts(model, ratings.items.size)
    state, losses = PrivateState.begin(model, np.random.default_rng(1)), []
    for _ in range(60):
        losses.append(model.gradients(rows, dense, private, ratings).loss)
        by_row, by_dense, state = learn(model, state, rows, dense, ratings, rate=0.01)
        rows, dense = rows - np.float32(0.05) * by_row, dense - np.float32(0.05) * by_dense
    assert losses[-1] < losses[0] / 3


@EACH_MODEL
def test_ratings_without_an_order_are_refused(model: SequenceModel) -> None:
    rows, dense, private = parts(model, 2)
    ratings = Ratings(np.arange(2), np.ones(2, np.float32))
    with pytest.raises(PartError, match="time order"):
        model.gradients(rows, dense, private, ratings)


def test_neither_a_window_nor_its_ratings_show_events() -> None:
    found = order([12345], [-1], seed=99)
    assert "12345" not in repr(found)
    assert "99" not in repr(Window(np.array([1]), np.array([2]), 99))
