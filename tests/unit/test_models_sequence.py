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
from secemb_sdk.models.torch import Convolution, SelfAttention, Tensors
from secemb_sdk.models.torch.sequence import Dropout, tell_apart
from secemb_sdk.models.update import fit_private
from secemb_sdk.models.window import draw_window, newest, order
from secemb_shared.randomness import Indices

Array = npt.NDArray[Any]
ITEMS = 30
Stateful = SelfAttention | Convolution
MODELS: dict[str, Stateful] = {
    "sasrec": SelfAttention(dimension=4, length=6),
    "caser": Convolution(dimension=4, length=6, height=3, horizontal=2, vertical=2),
}
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
    assert found.items.size <= room
    assert np.unique(found.items).size == found.items.size
    own = found.items[places].tolist()
    assert any(own == events[start : start + len(own)].tolist() for start in range(events.size + 1))
    strangers = found.window.strangers
    assert strangers.size <= (room - np.unique(own).size if own else 0)
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
    assert not found.window.strangers.size


def test_the_fewer_events_there_are_the_more_strangers_a_round_has_room_for() -> None:
    few, many = (
        draw_window(np.arange(count, dtype=np.int64), items=10**6, length=51, room=101, random_bytes=seeded(1))
        for count in (3, 300)
    )
    assert few.window is not None
    assert many.window is not None
    assert (few.window.events.size, few.window.strangers.size) == (3, 98)
    assert (many.window.events.size, many.window.strangers.size) == (51, 50)


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


def test_each_event_is_told_from_all_strangers_by_a_softmax() -> None:
    states, outputs = (np.random.default_rng(7).normal(size=size) for size in ((3, 4), (6, 5)))
    scores = states @ outputs[:, :-1].T + outputs[:, -1]
    shares = [
        np.exp(scores[at, chosen]) / np.exp(scores[at, [chosen, 4, 5, 4]]).sum() for at, chosen in ((0, 2), (2, 1))
    ]
    places = torch.tensor([2, -1, 1]), torch.tensor([-1, 4, 5, 4])
    found = tell_apart(torch.tensor(states), torch.tensor(outputs), *places)
    assert float(found) == pytest.approx(-np.log(shares).sum())


@EACH_MODEL
def test_without_strangers_there_is_nothing_to_learn(model: SequenceModel) -> None:
    ratings = order([3, 8, 3, 11], [], seed=1)
    found = model.gradients(*parts(model, ratings.items.size), ratings)
    assert found.loss == 0
    assert not found.rows.any()
    assert not found.dense.any()


# No position sees its own future.


class ClairvoyantAttention(SelfAttention):
    """A planted fault: every position sees the mean of all events."""

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        return super().states(rows, dense, events, dropout) + rows[events, :-1].mean(dim=0)


class ClairvoyantConvolution(Convolution):
    """A planted fault: the person's vector is the same at every position."""

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        z, p = super().states(rows, dense, events, dropout).chunk(2, dim=1)
        return torch.cat([z, p[-1:].expand_as(p)], dim=1)


def states(model: Stateful, rows: Array, events: list[int]) -> Tensor:
    dense, private = (torch.tensor(part) for part in parts(model, 8)[1:])
    return model.states(torch.tensor(rows), model.named(dense, private)[0], torch.tensor(events), Dropout(0, 0))


def leaks(model: Stateful) -> bool:
    """Tell whether a later event changes the state after an earlier one."""
    rows = parts(model, 8)[0]
    before, after = states(model, rows, [0, 1, 2, 3]), states(model, rows, [0, 1, 2, 5])
    assert not torch.equal(before[3], after[3])  # its own event it does see
    return not torch.equal(before[:3], after[:3])


@EACH_MODEL
def test_no_position_sees_a_later_event(model: Stateful) -> None:
    assert not leaks(model)


@pytest.mark.parametrize("model", [ClairvoyantAttention, ClairvoyantConvolution])
def test_a_model_that_looks_ahead_is_noticed(model: type[Stateful]) -> None:
    assert leaks(model(dimension=4, length=6))


@EACH_MODEL
def test_an_event_without_a_row_is_seen_by_nobody(model: Stateful) -> None:
    rows, gap = parts(model, 8)[0], [0, -1, 2, 3]
    before = states(model, rows, gap)
    rows[1] += 1
    assert torch.equal(states(model, rows, gap), before)
    rows[0] += 1  # stands in where there is no row: only the state of the gap itself may change with it, and of no use
    assert not torch.equal(states(model, rows, gap)[2:], before[2:])


def test_filters_look_back_their_height_and_the_person_everywhere() -> None:
    model = Convolution(dimension=4, length=6, height=3)
    rows = parts(model, 8)[0]
    before, after = (states(model, rows, [first, 1, 2, 3, 4])[-1].chunk(2) for first in (0, 5))
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])
    assert not torch.equal(states(model, rows, [2, 3, 4])[-1, :4], states(model, rows, [1, 3, 4])[-1, :4])


def test_the_convolutions_are_those_of_the_paper_at_each_position_alone() -> None:
    model = Convolution(dimension=4, length=6, height=3, horizontal=2, vertical=2)
    rows, flat, private = parts(model, 8, np.float64)
    dense = {name: one.numpy() for name, one in model.named(torch.tensor(flat), torch.tensor(private))[0].items()}
    events = [3, 0, 5, 1]
    named = model.named(torch.tensor(flat), torch.tensor(private))[0]
    found = model.states(torch.tensor(rows), named, torch.tensor(events), Dropout(0, 0)).numpy()
    for place in range(len(events)):
        image = np.zeros((3, 4))
        for back, event in enumerate(events[max(0, place - 2) : place + 1][::-1]):
            image[2 - back] = 2 * rows[event, :4]
        features = []
        for height in (1, 2, 3):
            pieces = [image[top : top + height] for top in range(4 - height)]
            filters, bias = dense[f"filters {height}"].reshape(height, 4, 2), dense[f"filters bias {height}"]
            over = [np.maximum(np.einsum("hd,hdf->f", piece, filters) + bias, 0) for piece in pieces]
            features.append(np.max(over, axis=0))
        features.append((image.T @ dense["vertical"] + dense["vertical bias"]).ravel())
        z = np.maximum(np.concatenate(features) @ dense["linear"] + dense["linear bias"], 0)
        p = rows[events[: place + 1], 8:12].sum(axis=0) / np.sqrt(place + 1)
        assert found[place] == pytest.approx(np.concatenate([z, p]))


# Few events, and learning.


@EACH_MODEL
@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_events_are_enough_to_score_and_two_to_learn(model: SequenceModel, count: int) -> None:
    assert follows(model)
    assert not is_solved(model)
    events = np.arange(count, dtype=np.int64)
    assert (window(model, events.tolist()).items.size > count) == (count == 2)
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


@pytest.mark.parametrize("kind", [SelfAttention, Convolution])
def test_what_was_chosen_scores_higher_after_some_steps_of_descent(kind: type[Stateful]) -> None:
    model = kind(dimension=8, length=6, dropout=0.0)
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
