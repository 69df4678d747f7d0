"""What the owner may like: over the whole catalogue from a copy of the table, or among candidates read privately."""

from collections.abc import Iterable

import numpy as np

from secemb_sdk.context import Context
from secemb_sdk.errors import UnavailableError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Floats, Model
from secemb_sdk.recommend import CopyError, Scored, Shelf, TableCopy, TableFormat, rank_steps, recommend, sync_steps
from secemb_sdk.round.dense import TABLES, read_dense
from secemb_sdk.round.join import find_published, find_task
from secemb_sdk.round.upload import current_private
from secemb_sdk.steps import Steps, work
from secemb_shared.errors import RowTagError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices


def recommend_items(context: Context, *, k: int, table: TableFormat, include_rated: bool) -> Steps[Scored]:
    """Return the k best items of the catalogue; where there is no network, by the copy that is here."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(context, exchange))
    shelf = Shelf(context.vault.public_folder, task)
    try:
        copy, dense = yield from exchange.noting(_sync(context, exchange, shelf, table))
    except UnavailableError:
        kept = yield from work(lambda: shelf.table(table))
        if kept is None:
            raise
        copy, dense = kept, (yield from _dense_of(context, exchange, task, kept.version))
    return (yield from work(lambda: _recommend(context, task, copy, dense, k, include_rated)))


def rank_candidates(context: Context, candidates: Iterable[int], *, include_rated: bool) -> Steps[Scored]:
    """Return candidates with their scores, best first; neither server learns which they are."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(context, exchange))
    model, private = yield from work(lambda: _own(context, task))

    def dense_of(round_: RoundSpec) -> Steps[Floats | None]:
        return (yield from read_dense(context, exchange, task, round_.model_version))

    ranking = rank_steps(
        task,
        model,
        np.unique(np.fromiter(candidates, dtype=np.int64)),
        private=private,
        dense_of=dense_of,
        token=context.token,
        ask=exchange.ask_any,
        wait_since=lambda: exchange.wait_until(context.clock() + context.policy.keys_seconds),
        random_bytes=context.random_bytes,
    )
    try:
        ranked = yield from exchange.noting(ranking)
    except RowTagError:
        yield from exchange.note(Misconduct.ROWS)
        raise
    # Rated ones are read like all others and left out here: how much is read must not depend on who reads.
    rated = set((yield from work(lambda: _rated(context, include_rated=include_rated))).tolist())
    return [(item, score) for item, score in ranked if item not in rated]


def _sync(context: Context, exchange: Exchange, shelf: Shelf, table: TableFormat) -> Steps[tuple[TableCopy, Floats]]:
    published = yield from find_published(context, exchange)
    held = yield from work(lambda: shelf.table(table))
    dense = yield from _dense_of(context, exchange, shelf.task, published.version, beside=held)
    copy = yield from sync_steps(shelf, published, dense=dense, format_=table, ask=exchange.ask_any)
    return copy, dense


def _dense_of(
    context: Context, exchange: Exchange, task: TaskSpec, version: int, *, beside: TableCopy | None = None
) -> Steps[Floats]:
    """Return the dense part of a version, and keep it; that of the copy which is still in use stays as well."""
    name = yield from work(lambda: _place(context, version, beside))
    found = yield from read_dense(context, exchange, task, version, keep=name)
    if found is None:
        raise CopyError("the two servers do not publish the same dense part; use neither, and tell both operators")
    return found


def _place(context: Context, version: int, beside: TableCopy | None) -> str:
    """Return under which name a dense part is kept, or may be without taking the place of one that is in use."""
    held = [name for name in TABLES if context.vault.dense(name, version) is not None]
    free = [name for name in TABLES if beside is None or context.vault.dense(name, beside.version) is None]
    return (held or free)[0]


def _recommend(context: Context, task: TaskSpec, copy: TableCopy, dense: Floats, k: int, include_rated: bool) -> Scored:
    model, private = _own(context, task)
    exclude = _rated(context, include_rated=include_rated)
    return recommend(model, copy, private=private, dense=dense, k=k, exclude=exclude)


def _own(context: Context, task: TaskSpec) -> tuple[Model, Floats]:
    model = context.model_for(task)
    return model, current_private(context, model, context.random_bytes).values


def _rated(context: Context, *, include_rated: bool) -> Indices:
    return np.array([] if include_rated else list(context.vault.ratings()), dtype=np.int64)
