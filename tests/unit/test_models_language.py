"""The language model: slopes of its loss, no look ahead, sampled and whole softmax, adapters, short texts."""

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

from secemb_sdk.errors import ModelError
from secemb_sdk.models import PrivateState, Ratings, learn
from secemb_sdk.models.interface import follows, is_solved, reads_texts
from secemb_sdk.models.rank_sample import SHIFT
from secemb_sdk.models.torch import LanguageModel, Tensors
from secemb_sdk.models.torch.sequence import Dropout
from secemb_sdk.models.update import fit_private
from secemb_sdk.models.window import newest
from secemb_shared.randomness import Indices

Array = npt.NDArray[Any]
ITEMS, ROOM = 40, 18
WORDS = [1, 3, 8, 3, 11, 2, 20, 6, 1, 5]
WHOLE, ADAPTED = LanguageModel(dimension=4, length=6), LanguageModel(dimension=4, length=6, adapter_rank=1)
CLEAR = LanguageModel(dimension=4, length=12, dropout=0.0)
EACH_MODEL = pytest.mark.parametrize("model", [WHOLE, ADAPTED], ids=["whole", "adapted"])
TEXTS = st.lists(st.integers(0, ITEMS - 1), max_size=40).map(lambda found: np.array(found, dtype=np.int64))


def parts(model: LanguageModel, count: int, kind: Any = np.float32, seed: int = 0) -> list[Array]:
    """Return this many rows, a dense part and a private part."""
    rng = np.random.default_rng(seed)
    sizes = (count, model.row_width), (model.dense_size,), (model.private_size,)
    return [rng.normal(0, 0.4, size).astype(kind) for size in sizes]


def drawn(model: LanguageModel, words: list[int] = WORDS, *, room: int = ROOM, seed: int = 1) -> Ratings:
    return model.draw(np.array(words, dtype=np.int64), items=ITEMS, room=room, random_bytes=seeded(seed))


# What a round reads.


@given(TEXTS, st.integers(4, 60), st.integers(0, 1000))
def test_a_round_fills_its_room_whatever_the_text(words: Indices, room: int, seed: int) -> None:
    found = WHOLE.draw(words, items=ITEMS, room=room, random_bytes=seeded(seed))
    assert found.window is not None
    own = found.items[found.window.events].tolist()
    assert len(own) == (min(words.size, 25, room // 2) if words.size > 1 else 0)
    assert any(own == words[start : start + len(own)].tolist() for start in range(words.size + 1))
    assert found.items.size == (min(room, ITEMS) if own else 0)
    chances = dict(zip(found.items.tolist(), found.values.tolist(), strict=True))
    assert all(chances[word] == 1 for word in own)
    assert all(0 < chance <= 1 for chance in chances.values())


def test_it_is_a_model_of_texts_and_says_how_many_rows_it_reads() -> None:
    assert reads_texts(WHOLE)
    assert follows(WHOLE)
    assert not is_solved(WHOLE)
    assert LanguageModel(room=300).room == 300


# Gradients.


def slopes(model: LanguageModel, at: list[Array], part: int, ratings: Ratings) -> Array:
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
def test_gradients_are_the_slopes_of_the_loss(model: LanguageModel, part: int) -> None:
    ratings = drawn(model)
    at = parts(model, ratings.items.size, np.float64)
    found = model.gradients(at[0], at[1], at[2], ratings)
    ours, theirs = (found.rows, found.dense, found.private)[part], slopes(model, at, part, ratings)
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max(initial=1)
    assert part == 2 or np.abs(ours).max() > 1e-3


def test_the_same_seed_drops_the_same_numbers_and_another_seed_others() -> None:
    ratings = drawn(WHOLE)
    assert ratings.window is not None
    rows, dense, private = parts(WHOLE, ratings.items.size)
    other = replace(ratings, window=replace(ratings.window, seed=ratings.window.seed + 1))
    losses = [WHOLE.gradients(rows, dense, private, one).loss for one in (ratings, ratings, other)]
    assert losses[0] == losses[1] != losses[2]


def whole_loss(rows: Array, dense: Array, ratings: Ratings) -> float:
    """Return the loss of one window among all words."""
    assert ratings.window is not None
    words = ratings.items[ratings.window.events]
    assert words.size <= CLEAR.length + 1
    return -float(CLEAR.log_chances(rows, dense, words).sum())


def test_where_all_rows_are_read_the_loss_is_that_of_the_whole_softmax() -> None:
    rows, dense, private = parts(CLEAR, ITEMS)
    ratings = drawn(CLEAR, room=ITEMS)
    assert ratings.window is not None
    assert ratings.items.tolist() == list(range(ITEMS))
    loss = CLEAR.gradients(rows, dense, private, ratings).loss
    assert loss == pytest.approx(whole_loss(rows, dense, ratings), rel=1e-5)


def test_the_sampled_loss_is_near_the_whole_one_and_without_the_correction_it_is_not() -> None:
    rows, dense, private = parts(CLEAR, ITEMS)
    sampled, uncorrected, whole = [], [], []
    for seed in range(60):
        ratings = drawn(CLEAR, seed=seed)
        assert ratings.window is not None
        there = rows[ratings.items]
        alike = replace(ratings, values=np.ones_like(ratings.values))
        sampled.append(CLEAR.gradients(there, dense, private, ratings).loss)
        uncorrected.append(CLEAR.gradients(there, dense, private, alike).loss)
        whole.append(whole_loss(rows, dense, ratings))
    assert np.mean(sampled) == pytest.approx(np.mean(whole), rel=0.05)
    assert np.mean(uncorrected) < 0.9 * np.mean(whole)


def test_windows_are_read_beside_each_other_and_each_begins_without_a_past() -> None:
    model, words = LanguageModel(dimension=4, length=3, dropout=0.0), np.array([4, 9, 2, 7, 5, 3, 8, 6])
    rows, dense, private = parts(model, ITEMS)
    ratings = model.draw(words, items=ITEMS, room=ITEMS, random_bytes=seeded(1))
    loss = model.gradients(rows, dense, private, ratings).loss
    apart = [model.log_chances(rows, dense, words[begin : begin + 4]).sum() for begin in (0, 3, 6)]
    assert loss == pytest.approx(-sum(apart), rel=1e-5)


# No position sees its own future.


class Clairvoyant(LanguageModel):
    """A planted fault: every position sees the mean of all words."""

    def states(self, rows: Tensor, dense: Tensors, events: Tensor, dropout: Dropout) -> Tensor:
        return super().states(rows, dense, events, dropout) + rows[events, :-1].mean(dim=0)


def leaks(model: LanguageModel) -> bool:
    """Tell whether a later word changes the state after an earlier one."""
    rows, dense, private = parts(model, 8)
    named = model.named(torch.tensor(dense), torch.tensor(private))[0]
    before, after = (
        model.states(torch.tensor(rows), named, torch.tensor(words), Dropout(0, 0))
        for words in ([0, 1, 2, 3], [0, 1, 2, 5])
    )
    assert not torch.equal(before[3], after[3])  # its own word it does see
    return not torch.equal(before[:3], after[:3])


def test_no_position_sees_a_later_word_and_a_model_that_looks_ahead_is_noticed() -> None:
    assert not leaks(WHOLE)
    assert leaks(Clairvoyant(dimension=4, length=6))


def test_a_word_without_a_row_is_seen_by_nobody() -> None:
    ratings = drawn(WHOLE)
    assert ratings.window is not None
    lost = ratings.window.events[2]
    kept = ratings.take(np.flatnonzero(np.arange(ratings.items.size) != lost))
    assert kept.window is not None
    assert (kept.window.events == -1).any()
    rows, dense, private = parts(WHOLE, ratings.items.size)
    there = np.delete(rows, lost, axis=0)
    assert np.isfinite(WHOLE.gradients(there, dense, private, kept).loss)
    named = WHOLE.named(torch.tensor(dense), torch.tensor(private))[0]
    gap = torch.tensor([2, -1, 3])
    before = WHOLE.states(torch.tensor(rows), named, gap, Dropout(0, 0))
    rows[0] += 1  # it would stand in for the missing one
    assert torch.equal(WHOLE.states(torch.tensor(rows), named, gap, Dropout(0, 0)), before)


# What comes next.


def test_before_anything_is_learned_words_are_as_likely_as_their_ranks_say() -> None:
    rows, dense, _ = parts(WHOLE, ITEMS)
    found = np.exp(WHOLE.log_chances(np.zeros_like(rows), dense, np.array([1, 5, 9, 30])))
    law = 1 / (np.arange(ITEMS) + SHIFT)
    assert found == pytest.approx(law[[5, 9, 30]] / law.sum(), rel=1e-5)


def test_scores_after_some_words_are_the_chances_of_the_next_one() -> None:
    rows, dense, private = parts(WHOLE, ITEMS)
    words = np.array([1, 4, 7, 4], dtype=np.int64)
    history = newest(words, WHOLE.length)
    followed = WHOLE.follow(rows[history.items], dense, private, history)
    scores = WHOLE.scores(rows, dense, followed, np.arange(ITEMS)).astype(np.float64)
    chances = np.exp(scores) / np.exp(scores).sum()
    for word in (0, 2, 9):
        found = WHOLE.log_chances(rows, dense, np.append(words, word))
        assert np.exp(found[-1]) == pytest.approx(chances[word], rel=1e-4)


@EACH_MODEL
@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_words_are_enough_to_go_on_and_two_to_learn(model: LanguageModel, count: int) -> None:
    assert drawn(model, WORDS[:count]).items.size == (ROOM if count == 2 else 0)
    history = newest(np.arange(count, dtype=np.int64), model.length)
    rows, dense, private = parts(model, 8)
    state = PrivateState(values=private, first=np.zeros_like(private), second=np.zeros_like(private))
    found = fit_private(model, state, rows[:count], dense, history).values
    assert np.isfinite(model.scores(rows, dense, found, np.arange(8))).all()


@EACH_MODEL
def test_a_text_is_expected_after_some_steps_of_descent(model: LanguageModel) -> None:
    ratings = drawn(model)
    rows, dense, private = parts(model, ratings.items.size)
    state = PrivateState(values=private, first=np.zeros_like(private), second=np.zeros_like(private))
    losses = []
    for _ in range(60):
        losses.append(model.gradients(rows, dense, private, ratings).loss)
        by_row, by_dense, state = learn(model, state, rows, dense, ratings, rate=0.01)
        rows, dense = rows - np.float32(0.01) * by_row, dense - np.float32(0.01) * by_dense
    assert losses[-1] < losses[0] / 1.5


# Adapters.


def test_adapters_send_less_and_change_nothing_while_they_are_zero() -> None:
    frozen = parts(CLEAR, 1)[1]
    adapted = LanguageModel(dimension=4, length=6, dropout=0.0, adapter_rank=1, base=frozen)
    assert adapted.dense_size == 2 * (12 + 4) + (4 + 4) + 2 * 12 + 8
    assert LanguageModel(adapter_rank=4).dense_size < LanguageModel().dense_size / 7
    rows, words = parts(CLEAR, ITEMS)[0], np.array(WORDS[:6])
    ours = adapted.log_chances(rows, np.zeros(adapted.dense_size, np.float32), words)
    assert (ours == CLEAR.log_chances(rows, frozen, words)).all()


def test_frozen_weights_are_the_same_on_every_device() -> None:
    rows, dense, _ = parts(ADAPTED, ITEMS)
    other, words = LanguageModel(dimension=4, length=6, adapter_rank=1), np.array(WORDS[:6])
    assert (other.log_chances(rows, dense, words) == ADAPTED.log_chances(rows, dense, words)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"adapter_rank": 0}, "at least 1"), ({"base": np.zeros(3, np.float32)}, "set adapter_rank")],
)
def test_adapters_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        LanguageModel(**settings)
