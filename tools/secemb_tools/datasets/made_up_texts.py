"""Synthetic texts: a small grammar in which a word determines another one three words later."""

import numpy as np

from secemb_tools.datasets.made_up import NAME
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.datasets.texts import HELD_OUT, Author, Words, set_of

_ONSETS, _VOWELS, _CODAS = "bdfgklmnprstvz", "aeiou", "lmnrst"  # one of each is drawn
_ENDINGS = (("a", "ka"), ("these", "ti"))  # a determiner, and the ending of the verb in its sentence
_NOUNS, _VERBS = 0.5, 0.2  # shares of the stems; adjectives are the rest
_TAIL = 1.0  # a word's share falls with this power of its rank
_MOST_SENTENCES = 3
_TEXTS = 12  # of a person, on average


def make_texts(*, people: int, words: int, seed: int) -> RatingSet:
    """Return texts with a vocabulary of about this many words.

    A sentence is determiner, adjective, noun, verb, noun. The verb's ending follows from the determiner, which stands
    three words before it: a bigram model cannot learn it. People differ in the nouns that they like.
    """
    rng = np.random.default_rng([seed, 0x7E47])
    stems = _stems(rng, max(6, round(words / (1 + _VERBS))))
    nouns, verbs = round(_NOUNS * len(stems)), round((_NOUNS + _VERBS) * len(stems))
    authors = []
    for person in range(_with_others(people)):
        liked = rng.permutation(stems[:nouns]).tolist()
        words_of = liked, stems[nouns:verbs], stems[verbs:]
        authors.append(Author(str(person), [_text(rng, *words_of) for _ in range(1 + rng.poisson(_TEXTS - 1))]))
    return set_of(NAME, authors, seed=seed, least=1)


def _with_others(people: int) -> int:
    """Return the number of people, given how many of them have devices; the others are held out."""
    return next(count for count in range(people, 2 * people + 2) if count - round(HELD_OUT * count) == people)


def _text(rng: np.random.Generator, nouns: Words, verbs: Words, adjectives: Words) -> Words:
    found: Words = []
    for _ in range(1 + int(rng.integers(_MOST_SENTENCES))):
        determiner, ending = _ENDINGS[int(rng.integers(len(_ENDINGS)))]
        found += [determiner, _pick(rng, adjectives), _pick(rng, nouns), _pick(rng, verbs) + ending]
        found += [_pick(rng, nouns), "."]
    return found


def _pick(rng: np.random.Generator, words: Words) -> str:
    weights = 1 / np.arange(1, len(words) + 1) ** _TAIL
    return words[int(rng.choice(len(words), p=weights / weights.sum()))]


def _stems(rng: np.random.Generator, count: int) -> Words:
    """Return this many different words of three syllables."""
    found: dict[str, None] = {}
    while len(found) < count:
        parts = [_ONSETS, _VOWELS, _ONSETS, _VOWELS, _ONSETS, _VOWELS, _CODAS]
        found["".join(str(rng.choice(list(part))) for part in parts)] = None
    return list(found)
