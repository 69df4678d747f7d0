"""Suggestions to continue a text: words from the device's copy of the table. Nothing of the text leaves the device."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secemb_sdk.context import Context
from secemb_sdk.errors import MisfitError
from secemb_sdk.exchange import Exchange
from secemb_sdk.models import Floats, PrivateState
from secemb_sdk.models.interface import Model, TextModel, reads_texts
from secemb_sdk.models.update import fit_private
from secemb_sdk.models.window import newest
from secemb_sdk.recommend.catalogue import fetch_vocabulary
from secemb_sdk.recommend.copy import TableCopy
from secemb_sdk.recommend.rank import block_rows, copy_here, newest_copy, score
from secemb_sdk.round.join import find_task
from secemb_sdk.round.upload import current_private
from secemb_sdk.steps import Steps, work
from secemb_sdk.words import END, SPECIAL, Vocabulary, join_words
from secemb_shared.messages.table import TableFormat


class Suggestion(NamedTuple):
    """One suggested continuation of a text."""

    text: str  # the whole text, including the words
    words: tuple[str, ...]  # fewer than requested if the text ends after them
    chance: float  # of all of them, according to the model


def suggest_words(
    context: Context, text: str, *, k: int, words: int, table: TableFormat, refresh: bool
) -> Steps[list[Suggestion]]:
    """Return the k most likely next words, each followed by the most likely ones up to `words` in total.

    The local copy is used, so that no server notices when the owner types; `refresh` fetches a newer one first.
    """
    if k < 1 or words < 1:
        raise ValueError("k and words must be at least 1")
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(exchange))
    model = context.model_for(task)
    if not reads_texts(model):
        raise MisfitError("only a language model can suggest words; this is not a task for texts")
    yield from fetch_vocabulary(context, task)
    found = None if refresh else (yield from copy_here(exchange, task, table))
    copy, dense = found or (yield from newest_copy(exchange, task, table))

    def suggest() -> list[Suggestion]:
        state = current_private(context, model, context.random_bytes)
        return _Writer(model, copy, dense, state, context.vocabulary(task)).go_on(text, k, words)

    return (yield from work(suggest))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Writer:
    """A model with everything that it needs to continue texts."""

    model: TextModel
    copy: TableCopy
    dense: Floats
    private: PrivateState
    vocabulary: Vocabulary

    def go_on(self, text: str, k: int, count: int) -> list[Suggestion]:
        """Return the best continuations of this text."""
        begun = [END, *self.vocabulary.rows_of(self.model.split(text))]
        chances = self.chances(begun)
        first = np.argsort(-chances[len(SPECIAL) :], kind="stable")[:k] + len(SPECIAL)
        return [self._finish(text, begun, word, float(chances[word]), count) for word in first.tolist()]

    def chances(self, rows: list[int]) -> npt.NDArray[np.float64]:
        """Return the probability of each word after these."""
        history = newest(np.array(rows, dtype=np.int64), self.model.length)
        state = fit_private(self.model, self.private, self.copy.rows(history.items), self.dense, history)
        return softmax(score_all(self.model, self.copy, dense=self.dense, private=state.values))

    def _finish(self, text: str, begun: list[int], word: int, chance: float, count: int) -> Suggestion:
        added = [word]
        while len(added) < count:
            chances = self.chances([*begun, *added])
            chances[: len(SPECIAL)] *= np.arange(len(SPECIAL)) == END  # a text may end, but <unknown> is never added
            best = int(chances.argmax())
            if best == END:
                break
            added, chance = [*added, best], chance * float(chances[best])
        names = tuple(self.vocabulary.words[one] for one in added)
        return Suggestion(join_words(text, names), names, chance)


def score_all(model: Model, copy: TableCopy, *, dense: Floats, private: Floats) -> Floats:
    """Return the score of every item; the table is read in blocks of rows."""
    items = np.arange(copy.shape.items, dtype=np.int64)
    step = block_rows(copy.shape.width)
    blocks = [items[first : first + step] for first in range(0, items.size, step)]
    return np.concatenate([score(model, one, copy.rows(one), dense=dense, private=private) for one in blocks])


def softmax(scores: Floats) -> npt.NDArray[np.float64]:
    """Return the probabilities that scores stand for."""
    wide = scores.astype(np.float64)
    shares: npt.NDArray[np.float64] = np.exp(wide - wide.max())
    shares /= shares.sum()
    return shares
