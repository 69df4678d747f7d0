"""Texts as rows of a table: how a text is split into words, and which word is which row.

The vocabulary of a task is its public catalogue, whose ids are words. Row 0 stands for every word that it does not
have, and row 1 for the end of a text; the others are in the order of how often they occur.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Self

import numpy as np

from secemb_sdk.errors import MisfitError
from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices

UNKNOWN, END = 0, 1  # rows
SPECIAL = ("<unknown>", "<end>")  # no text has these words: each of their signs is a word of its own

_LAST_MARK = 0x1F000  # signs that are written over or under others have lower numbers
_PLAIN = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_OPENING, _CLOSING = frozenset("([{"), frozenset(".,;:!?)]}…")


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; whatever is neither letter nor digit nor space is a word of its own.

    An apostrophe between letters belongs to its word. Curly quotes and apostrophes count as straight ones.
    """
    plain = unicodedata.normalize("NFC", text).lower().translate(_PLAIN)
    return [word for word in _pattern().findall(plain) if word.isprintable() and word not in _marks()]


def join_words(text: str, words: Iterable[str]) -> str:
    """Return a text that goes on with these words."""
    for word in words:
        close = not text or text[-1].isspace() or text[-1] in _OPENING or word in _CLOSING
        text += word if close else f" {word}"
    return text


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The words of a task by row."""

    words: tuple[str, ...]
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Number the words."""
        object.__setattr__(self, "_rows", {word: row for row, word in enumerate(self.words)})

    @classmethod
    def of(cls, catalogue: Catalogue) -> Self:
        """Return the vocabulary in a task's catalogue, or raise if it has none."""
        if catalogue.ids[: len(SPECIAL)] != SPECIAL:
            raise MisfitError(
                "the task's catalogue is not a vocabulary, which starts with <unknown> and <end>; use a task "
                "created for texts"
            )
        return cls(catalogue.ids)

    def rows_of(self, words: Iterable[str]) -> list[int]:
        """Return the row of each word."""
        return [self._rows.get(word, UNKNOWN) for word in words]

    def encode(self, texts: Iterable[Iterable[str]]) -> Indices:
        """Return the rows of texts one after the other: an end, and then the words of the next text.

        So the first word of a text follows an end, and the newest text is still open. A text without words is left out.
        """
        found = [[END, *rows] for rows in map(self.rows_of, texts) if rows]
        return np.array([row for rows in found for row in rows], dtype=np.int64)


@cache
def _marks() -> frozenset[str]:
    """Return the signs that belong to the letter before them; `re` counts them as no part of a word."""
    signs = map(chr, range(_LAST_MARK))
    return frozenset(sign for sign in signs if unicodedata.category(sign).startswith("M"))


@cache
def _pattern() -> re.Pattern[str]:
    rest = rf"(?:[^\W_]|[{re.escape(''.join(sorted(_marks())))}])*"
    return re.compile(rf"[^\W_]{rest}(?:'[^\W_]{rest})*|\S")
