"""The task's catalogue on a device: fetched once, as a whole, so that no server learns which titles are looked up."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, MisfitError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.catalogue_file import FOREIGN, CatalogueFile
from secemb_sdk.models.interface import reads_texts
from secemb_sdk.recommend.sync import CHUNK, PIECE_SECONDS, full_size
from secemb_sdk.round.join import find_task
from secemb_sdk.steps import Request, Steps, work
from secemb_shared.catalogue import LARGEST, Catalogue
from secemb_shared.messages import TaskSpec


class Recommendation(NamedTuple):
    """A recommended item. Without a catalogue it has no id and no title."""

    item: int  # its row
    score: float
    id: str | None = None  # the id in the catalogue
    title: str | None = None


def name_items(
    exchange: Exchange, task: TaskSpec, scored: Iterable[tuple[int, float]], *, titles: bool
) -> Steps[list[Recommendation]]:
    """Return items with their ids and titles, if requested and if the task has a catalogue."""
    if not titles or not task.catalogue:
        return [Recommendation(item, score) for item, score in scored]
    file = CatalogueFile(exchange.context.vault.public_folder, task)
    yield from fetch_catalogue(exchange, file)
    scored = list(scored)
    names = yield from work(lambda: file.names({item for item, _ in scored}))
    return [Recommendation(item, score, *names[item]) for item, score in scored]


def find_catalogue(context: Context) -> Steps[Catalogue]:
    """Return the task's catalogue; an empty one, in which rows are ids, if it has none."""
    exchange = Exchange(context)
    task = yield from exchange.noting(find_task(exchange))
    if not task.catalogue:
        return Catalogue()
    file = CatalogueFile(exchange.context.vault.public_folder, task)
    yield from fetch_catalogue(exchange, file)
    return (yield from work(file.load))


def fetch_vocabulary(context: Context, task: TaskSpec) -> Steps[None]:
    """Fetch the task's words, if the model reads texts: on a device without texts too, so that it looks like others."""
    if not reads_texts(context.model_for(task)):
        return
    if not task.catalogue:
        raise MisfitError(
            "a language model needs a task with a vocabulary as its catalogue; this task has no catalogue"
        )
    # A separate exchange: it happens once, and is not part of a round's traffic.
    yield from fetch_catalogue(Exchange(context), CatalogueFile(context.vault.public_folder, task))
    yield from work(lambda: context.vocabulary(task))  # raises before anything starts if it is not a text model


def fetch_catalogue(exchange: Exchange, file: CatalogueFile, *, chunk: int = CHUNK) -> Steps[None]:
    """Download the catalogue unless it is stored here; an interrupted download resumes."""
    if (yield from work(file.is_here)):
        return
    try:
        yield from _download(exchange, file, chunk)
        yield from work(file.install)
    except (CopyError, RefusedError) as error:
        yield from work(file.drop_part)
        if isinstance(error, CopyError):
            raise
        raise CopyError(FOREIGN) from error  # it is shorter than what this device has already downloaded


def _download(exchange: Exchange, file: CatalogueFile, chunk: int) -> Steps[None]:
    have, size = (yield from work(file.size_of_part)), None
    while size is None or have < size:
        (answer,) = yield from exchange.ask(_piece_of(file.task, have, chunk))
        size = full_size(answer, have)
        if size > LARGEST or have + len(answer.body) > size:
            raise CopyError(FOREIGN)
        yield from work(partial(file.append, answer.body))
        have += len(answer.body)


def _piece_of(task: TaskSpec, first: int, count: int) -> Request:
    path, headers = f"/v1/tasks/{task.task_id.hex()}/catalogue", {"range": f"bytes={first}-{first + count - 1}"}
    return Request(server=0, method="GET", path=path, headers=headers, most=max(count, CHUNK), seconds=PIECE_SECONDS)
