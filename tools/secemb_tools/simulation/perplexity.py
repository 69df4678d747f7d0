"""Perplexity of a model of texts on texts that no device has, and that of simpler models.

    perplexity   exp of the mean, over all words and the end of each text, of −log(probability) in the whole vocabulary
    unigram      λ · share of the word in the training texts + (1 − λ) / words of the vocabulary
    bigram       λ₂ · share of the word after the one before it + λ₁ · unigram share + λ₀ / words of the vocabulary

The simpler models have central access to the training texts of all devices. Their weights λ maximise the likelihood
of a tenth of the training texts, given shares in the other nine tenths (EM, Jelinek and Mercer 1980); then shares are
computed from all of them. The weights of the bigram depend on the count of the preceding word, by powers of two.

A text begins after an end, and no model uses the texts before it. A word that is not in the vocabulary is
<unknown> for each of them.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats
from secemb_sdk.models.interface import TextModel
from secemb_sdk.words import END
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.texts import texts_in
from secemb_tools.simulation.accuracy import Estimate

Doubles = npt.NDArray[np.float64]
MODEL, BIGRAM, UNIGRAM = "model", "bigram", "unigram"
_TUNED = 10  # one of this many texts is for the weights
_STEPS = 100  # of EM
_DRAWN = 43  # purpose of a derived seed
_MOST_SEEN = 40  # powers of two


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityFigures:
    """The perplexity of some texts."""

    texts: int
    words: int  # with the end of each text
    vocabulary: int
    perplexity: Estimate  # over texts of the same kind

    @classmethod
    def of(cls, log_chances: list[Floats] | list[Doubles], vocabulary: int) -> "PerplexityFigures":
        """Return the figures of texts, given the log probabilities of the words in each."""
        costs = np.array([-one.sum(dtype=np.float64) for one in log_chances])
        counts = np.array([float(one.size) for one in log_chances])
        mean = Estimate.ratio(costs, counts)
        ends = (None if end is None else float(np.exp(end)) for end in (mean.low, mean.high))
        return cls(
            texts=len(log_chances),
            words=int(counts.sum()),
            vocabulary=vocabulary,
            perplexity=Estimate(float(np.exp(mean.value)), *ends),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Counts of words, and of pairs of words, in some texts."""

    words: int
    pairs: Indices  # (pairs,) in order: first · words + second
    times: Indices  # (pairs,)
    first: Indices  # (words,) how often a word precedes another
    second: Indices  # (words,) how often it follows another

    @classmethod
    def of(cls, texts: list[Indices], words: int) -> "_Counts":
        before, after = _pairs(texts)
        pairs, times = np.unique(before * words + after, return_counts=True)
        return cls(words, pairs, times, *(np.bincount(one, minlength=words) for one in (before, after)))

    def shares(self, before: Indices, after: Indices) -> Doubles:
        """Return the shares that the bigram mixes, (3, n): uniform, the word's own, and its share after the other."""
        wanted = before * self.words + after
        place = np.minimum(np.searchsorted(self.pairs, wanted), max(0, self.pairs.size - 1))
        times = np.where(self.pairs[place] == wanted, self.times[place], 0)
        after_it = times / np.maximum(self.first[before], 1)
        return np.stack([np.full(before.size, 1 / self.words), self.second[after] / self.second.sum(), after_it])

    def seen(self, before: Indices) -> Indices:
        """Return the index of the mixing weights: 0 for a word that was never seen, 1 for once, 2 for 2 or 3."""
        found: Indices = np.ceil(np.log2(self.first[before] + 1)).astype(np.int64)
        return found


class Bigram:
    """A bigram model, interpolated with the unigram model and a share for every word."""

    def __init__(self, texts: list[Indices], words: int, *, seed: int = 0, pairs: bool = True) -> None:
        self._kinds = 3 if pairs else 2  # of shares: with none for pairs it is a unigram model
        order = np.random.default_rng([seed, _DRAWN]).permutation(len(texts)).tolist()
        tuned, rest = order[: len(order) // _TUNED], order[len(order) // _TUNED :]
        self.weights = self._tune([texts[one] for one in tuned], _Counts.of([texts[one] for one in rest], words))
        self._counts = _Counts.of(texts, words)

    def log_chances(self, text: Indices) -> Doubles:
        """Return the log probability of each word of a text but the first, which is an end."""
        before, after = text[:-1], text[1:]
        shares = self._counts.shares(before, after)[: self._kinds]
        found: Doubles = np.log((self.weights[:, self._seen(self._counts, before)] * shares).sum(axis=0))
        return found

    def _tune(self, texts: list[Indices], counts: _Counts) -> Doubles:
        """Return the weights, by kind and count of the preceding word."""
        weights = np.full((self._kinds, _MOST_SEEN), 1 / self._kinds)
        if not texts:
            return weights
        before, after = _pairs(texts)
        shares, seen = counts.shares(before, after)[: self._kinds], self._seen(counts, before)
        for _ in range(_STEPS):
            parts = weights[:, seen] * shares
            parts /= parts.sum(axis=0)
            # As if one more word counted for all equally, so that no weight is zero.
            sums = np.stack([np.bincount(seen, weights=part, minlength=_MOST_SEEN) + 1 / self._kinds for part in parts])
            weights = sums / sums.sum(axis=0)
        return weights

    def _seen(self, counts: _Counts, before: Indices) -> Indices:
        return counts.seen(before) if self._kinds == 3 else np.zeros_like(before)


def measure_texts(ratings: RatingSet, model: TextModel, rows: Floats, dense: Floats, *, seed: int) -> dict[str, Any]:
    """Return the figures of all models, by name and kind of texts."""
    trained, count = training_texts(ratings), ratings.item_count
    bigram, unigram = Bigram(trained, count, seed=seed), Bigram(trained, count, seed=seed, pairs=False)
    found: dict[str, Any] = {}
    for what, words in ratings.unseen.items():
        texts = texts_in(words)
        by_name: dict[str, list[Floats] | list[Doubles]] = {
            MODEL: [log_chances(model, rows, dense, text) for text in texts],
            BIGRAM: [bigram.log_chances(text) for text in texts],
            UNIGRAM: [unigram.log_chances(text) for text in texts],
        }
        found |= {f"{name}, {what}": PerplexityFigures.of(one, count).as_json() for name, one in by_name.items()}
    return found


def training_texts(ratings: RatingSet) -> list[Indices]:
    """Return the texts of all devices, each from one end to the next."""
    place = np.arange(ratings.items.size) if ratings.order is None else ratings.order
    own = [ratings.items[mine][np.argsort(place[mine])] for mine in ratings.by_person()]
    return [text for words in own if words.size for text in texts_in(np.append(words, END))]


def log_chances(model: TextModel, rows: Floats, dense: Floats, text: Indices) -> Floats:
    """Return the log probability of each word of a text but the first.

    A text longer than the model's context is read in windows that overlap by half: in each but the first, only the
    second half counts.
    """
    length, half = model.length, model.length - model.length // 2
    begins = range(0, max(1, text.size - 1 - length + half), half)
    found = [model.log_chances(rows, dense, text[begin : begin + length + 1]) for begin in begins]
    return np.concatenate([one if place == 0 else one[length - half :] for place, one in enumerate(found)])


def _pairs(texts: list[Indices]) -> tuple[Indices, Indices]:
    """Return each word that has a successor, and the successor."""
    both = np.array([pair for text in texts for pair in pairwise(text.tolist())], dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
