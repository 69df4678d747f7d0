"""Words: how texts are split and joined, and which word is which row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_sdk.errors import MisfitError
from secemb_sdk.words import END, SPECIAL, UNKNOWN, Vocabulary, join_words, split_words
from secemb_shared.catalogue import Catalogue

TEXTS = st.text(max_size=60)
WORDS = Vocabulary((*SPECIAL, ",", "the", "don't", "queen"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("To be, or not to be?", ["to", "be", ",", "or", "not", "to", "be", "?"]),
        ("Don’t — “stop”!", ["don't", "—", '"', "stop", '"', "!"]),
        ("’Tis th’ thing", ["'", "tis", "th", "'", "thing"]),
        ("o'er-hasty 3rd", ["o'er", "-", "hasty", "3rd"]),
        ("ÉTÉ Straße ΣΑΣ", ["été", "straße", "σας"]),
        ("e\u0301te\u0301", ["été"]),  # written with marks of their own
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowels are marks here
        ("a\u2060\u200bb\u00a0c\ufe0f", ["a", "b", "c\ufe0f"]),
        ("我 👍", ["我", "👍"]),
        (" \n\t ", []),
        ("", []),
        ("<unknown> <end>", ["<", "unknown", ">", "<", "end", ">"]),
    ],
)
def test_a_text_is_split_into_words_of_lower_case_and_signs(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(TEXTS)
def test_words_that_are_joined_by_spaces_are_split_into_the_same_words(text: str) -> None:
    words = split_words(text)
    assert split_words(" ".join(words)) == words
    assert all(word and not any(sign.isspace() for sign in word) for word in words)


@given(TEXTS)
def test_no_text_has_the_words_that_stand_for_something_else(text: str) -> None:
    assert not set(split_words(text + "<unknown><end>")) & set(SPECIAL)


@pytest.mark.parametrize(
    ("text", "words", "joined"),
    [
        ("to be", ("or", "not"), "to be or not"),
        ("to be", (",", "that"), "to be, that"),
        ("to be ", ("or",), "to be or"),
        ("", ("well",), "well"),
        ("he said (", ("no", ")"), "he said (no)"),
    ],
)
def test_a_text_goes_on_with_spaces_where_they_belong(text: str, words: tuple[str, ...], joined: str) -> None:
    assert join_words(text, words) == joined


def test_each_text_begins_after_an_end_and_unknown_words_have_one_row() -> None:
    texts = [["the", "queen"], [], ["dragon"]]
    assert WORDS.encode(texts).tolist() == [END, 3, 5, END, UNKNOWN]
    assert WORDS.encode([]).size == 0
    assert WORDS.rows_of(["don't", "<unknown>", "x"]) == [4, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("ids", [(), ("the",), ("<end>", "<unknown>", "the")])
def test_a_catalogue_of_items_is_no_vocabulary(ids: tuple[str, ...]) -> None:
    with pytest.raises(MisfitError, match="not a vocabulary"):
        Vocabulary.of(Catalogue(ids=ids))
