"""The paper's figure of memory and storage: a device's data with m' rows, and with the whole table."""

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from secemb_lab.bench import device_models
from secemb_lab.paper.compression.reductions import MODELS, title_of
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_sdk.models import Model, PrivateState, Ratings, learn
from secemb_tools.catalogues import CATALOGUES, PaperCatalogue

LABEL = "fig:trainmemory"
_SETS = ("ML1M", "ML10M", "ML25M", "Yelp")  # of the figure
_CAPTION = """\
Storage is the numbers that a device holds: rows, and dense part. Memory is the megabytes of the arrays that a training
step on one rating takes: rows, dense part and private part, and the gradients of the three, where that of the rows is
an update of all rows held. The interpreter and torch, which both need alike, are left out. A saving is the figure of
the whole table as a multiple of that with m' rows, on average over the four models.
"""
_AVERAGE = (
    "The paper does not say what it averages, or over how many rows; here a device holds all m' of them, and the "
    "models' ratios are averaged."
)
_RATE = 0.01


@table("memory", title="Memory and storage of training", night_seconds=30)
def make(settings: Settings, progress: Progress) -> Body:
    """Count the numbers held by a training step, for each model on each catalogue."""
    cells = list(_cells(progress))
    return Body(caption=" ".join(_CAPTION.split()), cells=cells)


def _cells(progress: Progress) -> Iterator[Cell]:
    catalogues = [one for one in CATALOGUES if one.name in _SETS]
    for number, one in enumerate(catalogues, start=1):
        memory, storage = [], []
        for name in MODELS:
            model = device_models.make(name, one.name)
            few, whole = (step_bytes(model, rows) for rows in (one.capacity, one.items))
            memory.append(whole / few)
            storage.append(stored(model, one.items) / stored(model, one.capacity))
            yield from _rows(name, one, model, few, whole)
        for what, ratios in (("memory saving", memory), ("storage saving", storage)):
            papers = printed(LABEL, what, one.name)
            yield Cell(row=what, column=one.name, ours=fmean(ratios), paper=papers, better="more", note=_AVERAGE)
        progress(number / len(catalogues), one.name)


def _rows(name: str, one: PaperCatalogue, model: Model, few: int, whole: int) -> Iterator[Cell]:
    for method, rows, held in (("SecEmb", one.capacity, few), ("Secure FedRec", one.items, whole)):
        row = f"{title_of(name)} / {method}"
        yield Cell(row=f"{row}, memory", column=one.name, ours=held / 1e6, unit="MB")
        yield Cell(row=f"{row}, storage", column=one.name, ours=stored(model, rows) / 1e3, unit="10³ numbers")


def stored(model: Model, rows: int) -> int:
    """Return how many numbers a device with this many rows holds."""
    return rows * model.row_width + model.dense_size


def step_bytes(model: Model, rows: int) -> int:
    """Return the bytes of all data that a step on one rating reads and creates, with this many rows held."""
    random = np.random.default_rng(1)
    held = np.zeros((rows, model.row_width), dtype=np.float32)
    dense = random.normal(0, 0.1, model.dense_size).astype(np.float32)
    private = PrivateState.begin(model, random)
    rating = Ratings(np.array([0]), np.array([0.5], dtype=np.float32))
    by_row, by_dense, moved = learn(model, private, held[:1], dense, rating, rate=_RATE)
    update = np.zeros_like(held)
    update[:1] = by_row
    return sum(one.nbytes for one in (held, update, dense, by_dense, private.values, moved.values))
