"""Perplexity: a bigram computed by hand, texts that are longer than a model looks back, and shares that add up."""

import math
from itertools import pairwise

import numpy as np
import pytest

from secemb_sdk.models.torch import LanguageModel
from secemb_shared.randomness import Indices
from secemb_tools.datasets.made_up_texts import make_texts
from secemb_tools.datasets.texts import texts_in
from secemb_tools.simulation.perplexity import Bigram, PerplexityFigures, log_chances, measure_texts, training_texts

A, B, END, WORDS = 2, 3, 1, 4


def text(*words: int) -> Indices:
    return np.array([END, *words, END], dtype=np.int64)


def test_a_bigram_is_that_of_the_hand_for_the_weights_that_it_has() -> None:
    bigram = Bigram([text(A, B), text(A, A)], WORDS)  # too few texts to tune: each weight is a third
    assert (bigram.weights == 1 / 3).all()
    # Words that come second: A three times, B once, END twice. After END: A twice. After A: B, A and END.
    found = np.exp(bigram.log_chances(text(A, B)))
    by_hand = [1 / 4 + 3 / 6 + 2 / 2, 1 / 4 + 1 / 6 + 1 / 3, 1 / 4 + 2 / 6 + 1 / 1]
    assert found == pytest.approx([one / 3 for one in by_hand])
    unigram = Bigram([text(A, B), text(A, A)], WORDS, pairs=False)
    assert np.exp(unigram.log_chances(text(A, B))) == pytest.approx([(1 / 4 + one / 6) / 2 for one in (3, 1, 2)])


def test_perplexity_is_the_chance_of_a_word_on_average() -> None:
    figures = PerplexityFigures.of([np.log([0.5, 0.25]), np.log([0.125])], 7)
    assert figures.perplexity.value == pytest.approx((2 * 4 * 8) ** (1 / 3))
    assert (figures.texts, figures.words, figures.vocabulary) == (2, 3, 7)
    assert figures.perplexity.low is not None
    assert figures.perplexity.low < figures.perplexity.value


@pytest.mark.parametrize("pairs", [True, False])
def test_the_chances_of_all_words_after_any_word_add_up_to_one(pairs: bool) -> None:
    data = make_texts(people=12, words=30, seed=1)
    bigram = Bigram(training_texts(data), data.item_count, pairs=pairs)
    for before in (1, 2, 9):
        chances = [math.exp(bigram.log_chances(np.array([before, word]))[0]) for word in range(data.item_count)]
        assert sum(chances) == pytest.approx(1)


def test_tuned_weights_trust_pairs_the_more_the_oftener_a_word_was_seen() -> None:
    texts = training_texts(make_texts(people=200, words=60, seed=1))
    bigram = Bigram(texts, 70)
    often, seldom = bigram.weights[2, 10], bigram.weights[2, 2]
    assert often > seldom
    assert bigram.weights.sum(axis=0) == pytest.approx(1)


def test_a_bigram_expects_texts_of_a_grammar_better_than_a_unigram() -> None:
    data = make_texts(people=60, words=60, seed=2)
    model = LanguageModel(dimension=4, length=8)
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 0.1, (data.item_count, 5)).astype(np.float32)
    dense = rng.normal(0, 0.1, model.dense_size).astype(np.float32)
    found = measure_texts(data, model, rows, dense, seed=1)
    assert list(found) == [f"{name}, {what}" for what in data.unseen for name in ("model", "bigram", "unigram")]
    for what in data.unseen:
        values = [found[f"{name}, {what}"]["perplexity"]["value"] for name in ("bigram", "unigram", "model")]
        assert values == sorted(values)  # a model that has learned nothing comes last
        assert len({found[f"{name}, {what}"]["words"] for name in ("model", "bigram", "unigram")}) == 1


@pytest.mark.parametrize("size", [2, 7, 8, 9, 12, 13, 14, 30])
def test_a_long_text_is_read_in_windows_and_each_word_counts_once(size: int) -> None:
    model = LanguageModel(dimension=4, length=8)
    rng = np.random.default_rng(size)
    rows = rng.normal(0, 0.5, (20, 5)).astype(np.float32)
    dense = rng.normal(0, 0.5, model.dense_size).astype(np.float32)
    words = rng.integers(0, 20, size)
    found = log_chances(model, rows, dense, words)
    assert found.size == size - 1
    for place in range(size - 1):
        windows = [words[begin : place + 2] for begin in range(max(0, place - 7), max(0, place - 3) + 1)]
        near = [float(model.log_chances(rows, dense, one)[-1]) for one in windows]
        assert any(found[place] == pytest.approx(one, abs=1e-5) for one in near)  # at least four words before it


def test_texts_in_rows_go_from_end_to_end() -> None:
    rows = np.array([1, 5, 6, 1, 7, 1])
    assert [one.tolist() for one in texts_in(rows)] == [[1, 5, 6, 1], [1, 7, 1]]
    assert [one.tolist() for one in texts_in(rows[:5])] == [[1, 5, 6, 1], [1, 7]]
    assert texts_in(np.zeros(0, np.int64)) == []


def test_training_texts_are_those_of_the_devices_in_their_order() -> None:
    data = make_texts(people=9, words=40, seed=3)
    found = training_texts(data)
    joined = np.concatenate([one[:-1] for one in found])
    assert joined.tolist() == data.items.tolist()
    assert all(one[0] == END and one[-1] == END for one in found)
    assert all(second != END for one in found for _, second in pairwise(one[:-1].tolist()))
