"""Recommendations: from the whole catalogue by a copy of the table, or among candidates read privately."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, UnavailableError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Ratings
from secemb_sdk.models.interface import Floats, Model, follows
from secemb_sdk.models.scale import Scale
from secemb_sdk.models.update import fit_private
from secemb_sdk.recommend.catalogue import Recommendation, fetch_vocabulary, name_items
from secemb_sdk.recommend.copy import Shelf, TableCopy
from secemb_sdk.recommend.private_read import RowsRead, read_rows
from secemb_sdk.recommend.sync import sync
from secemb_sdk.round.dense import ROUNDS, TABLES, ask_server1, read_dense
from secemb_sdk.round.join import find_published, find_task
from secemb_sdk.round.selection import draw_strangers
from secemb_sdk.round.upload import current_private
from secemb_sdk.steps import Steps, work
from secemb_shared.errors import RowTagError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import TableFormat
from secemb_shared.randomness import Indices, sample

Scored = list[tuple[int, float]]  # items and their scores, best first

_MOST_NUMBERS = 2**18  # of a block: a megabyte
_MOST_ROWS = 4096
_SPARSE = 8  # minimum ratio of catalogue to known items, so that draws find strangers
_NONE = np.empty(0, dtype=np.int64)


def recommend_items(
    context: Context, *, k: int, table: TableFormat, include_rated: bool, titles: bool = True
) -> Steps[list[Recommendation]]:
    """Return the k best items of the catalogue; without a network, from the local copy."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(exchange))
    yield from fetch_vocabulary(context, task)
    copy, dense = yield from newest_copy(exchange, task, table)
    found = yield from work(lambda: _recommend(context, task, copy, dense, k, include_rated))
    return (yield from name_items(exchange, task, found, titles=titles))


def rank_candidates(
    context: Context, candidates: Iterable[int], *, include_rated: bool, titles: bool = True
) -> Steps[list[Recommendation]]:
    """Return candidates with their scores, best first; neither server learns which they are."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(exchange))
    yield from fetch_vocabulary(context, task)
    model, private = yield from work(lambda: _own(context, task))
    items = np.fromiter(candidates, dtype=np.int64)
    try:
        ranked = yield from exchange.noting(rank_privately(exchange, task, model, items, private=private))
    except RowTagError:
        yield from exchange.note(Misconduct.ROWS)
        raise
    # Rated items are read like all others and left out here: how much is read must not depend on the owner.
    rated = set((yield from work(lambda: _rated(context, task, include_rated=include_rated))).tolist())
    kept = [(item, score) for item, score in ranked if item not in rated]
    return (yield from name_items(exchange, task, kept, titles=titles))


def rank_privately(
    exchange: Exchange, task: TaskSpec, model: Model, candidates: Indices, *, private: Floats
) -> Steps[Scored]:
    """Return the candidates with their scores, best first, without those missing from the catalogue."""
    items = np.unique(candidates)
    items = items[(items >= 0) & (items < task.items)]
    own = yield from work(lambda: _events_beside(exchange.context, task, model, items))
    found = yield from read_rows(exchange, task, np.concatenate([items, own.beside]))
    if found.round is None:
        return []
    dense = yield from _read_dense(exchange, task, found.round.model_version)
    found.check()  # only now: a wrong answer must not change what is sent
    both = _agreed(dense)
    return (yield from work(lambda: _as_ratings(task, _rank(model, found, both, private, own, items))))


def newest_copy(exchange: Exchange, task: TaskSpec, table: TableFormat) -> Steps[tuple[TableCopy, Floats]]:
    """Return the published table and its dense part; without a network, the local ones."""
    shelf = Shelf(exchange.context.vault.public_folder, task)
    try:
        return (yield from exchange.noting(_sync(exchange, shelf, table)))
    except UnavailableError:
        kept = yield from copy_here(exchange, task, table)
        if kept is None:
            raise
        return kept


def copy_here(exchange: Exchange, task: TaskSpec, table: TableFormat) -> Steps[tuple[TableCopy, Floats] | None]:
    """Return the local table and its dense part; nothing is sent unless the dense part has been lost."""
    kept = yield from work(lambda: Shelf(exchange.context.vault.public_folder, task).table(table))
    return None if kept is None else (kept, (yield from _table_dense(exchange, task, kept.version)))


def recommend(
    model: Model, copy: TableCopy, *, private: Floats, dense: Floats, k: int, exclude: Indices = _NONE
) -> Scored:
    """Return the k best items of the whole catalogue with their scores, without those to leave out.

    The table is read in blocks of rows, so that memory use does not grow with the catalogue.
    """
    if k < 1:
        raise ValueError("k must be at least 1")
    items, scores = _NONE, np.empty(0, dtype=np.float32)
    step = block_rows(copy.shape.width)
    for first in range(0, copy.shape.items, step):
        block = np.arange(first, min(first + step, copy.shape.items), dtype=np.int64)
        found = score(model, block, copy.rows(block), dense=dense, private=private)
        wanted = ~np.isin(block, exclude)
        items, scores = best(np.append(items, block[wanted]), np.append(scores, found[wanted]), k)
    return _pairs(items, scores)


def block_rows(width: int) -> int:
    """Return how many rows are passed to a model at once."""
    return max(16, min(_MOST_ROWS, _MOST_NUMBERS // width))


def score(model: Model, items: Indices, rows: Floats, *, dense: Floats, private: Floats) -> Floats:
    """Return one number for each of at most `block_rows` items; `rows[i]` is the row of `items[i]`."""
    filled = np.resize(np.arange(items.size), block_rows(rows.shape[1]))
    return model.scores(rows[filled], dense, private, items[filled])[: items.size]


def best(items: Indices, scores: Floats, k: int) -> tuple[Indices, Floats]:
    """Return the k items with the highest scores, best first; ties are broken by the lower item number."""
    scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)  # NaN scores come last
    if items.size > k:
        least = np.partition(scores, items.size - k)[items.size - k]
        items, scores = items[scores >= least], scores[scores >= least]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]


def _sync(exchange: Exchange, shelf: Shelf, table: TableFormat) -> Steps[tuple[TableCopy, Floats]]:
    published = yield from find_published(exchange)
    held = yield from work(lambda: shelf.table(table))
    dense = yield from _table_dense(exchange, shelf.task, published.version, beside=held)
    copy = yield from sync(exchange, shelf, published, dense=dense, format_=table)
    return copy, dense


def _table_dense(exchange: Exchange, task: TaskSpec, version: int, *, beside: TableCopy | None = None) -> Steps[Floats]:
    """Return the dense part of a version, and store it; that of the copy still in use is kept too."""
    name = yield from work(lambda: _free_name(exchange.context, version, beside))
    return _agreed((yield from _read_dense(exchange, task, version, keep=name)))


def _read_dense(exchange: Exchange, task: TaskSpec, version: int, *, keep: str = ROUNDS) -> Steps[Floats | None]:
    confirm = partial(ask_server1, exchange, task, version)
    return (yield from read_dense(exchange, task, version, confirm=confirm, keep=keep))


def _agreed(dense: Floats | None) -> Floats:
    if dense is None:
        raise CopyError("the two servers publish different dense parts, so neither is used; tell both operators")
    return dense


def _free_name(context: Context, version: int, beside: TableCopy | None) -> str:
    """Return the name under which a dense part is stored, or can be stored without replacing one in use."""
    held = [name for name in TABLES if context.vault.dense(name, version) is not None]
    free = [name for name in TABLES if beside is None or context.vault.dense(name, beside.version) is None]
    return (held or free)[0]


def _recommend(context: Context, task: TaskSpec, copy: TableCopy, dense: Floats, k: int, include_rated: bool) -> Scored:
    model = context.model_for(task)
    # From everything that the owner has rated or chosen: a new device then does as well as others.
    ratings = context.own_data(task, context.random_bytes)
    state = current_private(context, model, context.random_bytes)
    state = fit_private(model, state, copy.rows(ratings.items), dense, ratings)
    exclude = _rated(context, task, include_rated=include_rated)
    return _as_ratings(task, recommend(model, copy, private=state.values, dense=dense, k=k, exclude=exclude))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Own:
    """The owner's newest events, and the rows read with the candidates because of them."""

    events: Ratings | None = None
    beside: Indices = field(default_factory=lambda: _NONE)


def _events_beside(context: Context, task: TaskSpec, model: Model, candidates: Indices) -> _Own:
    """Return what a model of events needs; other models need nothing.

    The number of rows read does not depend on how many events there are, or which of them are candidates.
    """
    if not follows(model):
        return _Own()
    events = context.own_data(task, context.random_bytes)
    own = np.setdiff1d(events.items, candidates)
    known = set(candidates.tolist()) | set(own.tolist())
    rest = min(model.length, task.items - candidates.size) - own.size
    if task.items < _SPARSE * len(known):  # draws would hit known items too often, and find too few
        others = sample(np.setdiff1d(np.arange(task.items), list(known)), rest, context.random_bytes)
    else:
        others = draw_strangers(task.items, rest, known, context.random_bytes)
    return _Own(events, np.concatenate([own, others]))


def _rank(model: Model, found: RowsRead, dense: Floats, private: Floats, own: _Own, candidates: Indices) -> Scored:
    order = np.argsort(found.items)
    items, rows = found.items[order], found.rows[order]
    if own.events is not None and follows(model):
        if own.events.items.size:
            private = model.follow(rows[np.searchsorted(items, own.events.items)], dense, private, own.events)
        wanted = np.isin(items, candidates)
        items, rows = items[wanted], rows[wanted]
    step = block_rows(rows.shape[1])
    scores = [
        score(model, items[first : first + step], rows[first : first + step], dense=dense, private=private)
        for first in range(0, items.size, step)
    ]
    return _pairs(*best(items, np.concatenate(scores), items.size)) if scores else []


def _own(context: Context, task: TaskSpec) -> tuple[Model, Floats]:
    model = context.model_for(task)
    return model, current_private(context, model, context.random_bytes).values


def _rated(context: Context, task: TaskSpec, *, include_rated: bool) -> Indices:
    return _NONE if include_rated else context.known_items(task)


def _as_ratings(task: TaskSpec, scored: Scored) -> Scored:
    """Return the scores on the scale of the ratings."""
    scale = Scale.of(task)
    return [(item, scale.restore(score)) for item, score in scored]


def _pairs(items: Indices, scores: Floats) -> Scored:
    return list(zip(items.tolist(), scores.tolist(), strict=True))
