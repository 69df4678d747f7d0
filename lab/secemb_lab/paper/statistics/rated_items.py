"""The paper's table of datasets, and its figure of the long tail: how many items people have rated."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from secemb_lab.paper.compression.rating_case import FOLDERS
from secemb_lab.paper.paper_table import Body, Cell, Plot, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_tools.catalogues import CATALOGUES
from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.datasets.made_up import make_ratings

Counts = npt.NDArray[np.int64]

_CAPTION = """\
The sets as this project reads them, and how many people have rated at most m' items: theirs are the updates that SecEmb
sends whole. The paper says nearly 90 % of ML10M with 300, and there speaks of 27,278 items; its own table has 10,681.
"""
_MISSING = "The set {folder} is not in the folder of sets; put it there, and run the table again."
_DIFFERS = "This project reads everything in the set's files; the paper counts differently."
_QUICK = "This was a short run on made-up data, which only shows that it works."
_WITHIN = "people with at most m' items %"
_NEARLY = {"ML10M": 90.0}  # of the people, as the caption of the paper's figure says
_POINTS = 60


@table("datasets", title="Statistics of the datasets, and the long tail of ratings", night_seconds=60)
def make(settings: Settings, progress: Progress) -> Body:
    """Count the contents of the available sets."""
    cells: list[Cell] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for number, one in enumerate(CATALOGUES, start=1):
        ratings = _read(settings, one.name)
        cells += _cells(settings, one.name, one.capacity, ratings)
        if ratings is not None:
            lines[one.name] = long_tail(_counts(ratings))
        progress(number / len(CATALOGUES), one.name)
    plot = Plot(title="items that a person has rated, by share of the people", across="% of the people", lines=lines)
    return Body(caption=" ".join(_CAPTION.split()), cells=cells, plots=[plot] if lines else [])


def long_tail(counts: Counts) -> list[tuple[float, float]]:
    """Return how many items people have rated, from the most active one down, at selected ranks."""
    ordered = np.sort(counts)[::-1]
    places = np.unique(np.linspace(0, ordered.size - 1, _POINTS).astype(np.int64))
    return [(100.0 * (place + 1) / ordered.size, float(ordered[place])) for place in places.tolist()]


def _read(settings: Settings, catalogue: str) -> RatingSet | None:
    if settings.quick:
        return make_ratings(people=60, items=80, most=40, seed=7) if catalogue == "ML100K" else None
    path = settings.data / FOLDERS[catalogue]
    return read_ratings(path, quiet=True) if path.is_dir() else None


def _counts(ratings: RatingSet) -> Counts:
    return np.bincount(ratings.people, minlength=ratings.person_count)


def _cells(settings: Settings, catalogue: str, capacity: int, ratings: RatingSet | None) -> Iterator[Cell]:
    found = {} if ratings is None else _figures(ratings, capacity)
    note = _QUICK if settings.quick else _DIFFERS if found else _MISSING.format(folder=FOLDERS[catalogue])
    for column in ("users", "items", "ratings", "user features", "item features", "density %"):
        papers = printed("tab:datastat", catalogue, column)
        yield Cell(row=catalogue, column=column, ours=found.get(column), paper=papers, note=note)
    yield Cell(row=catalogue, column=_WITHIN, ours=found.get(_WITHIN), paper=_NEARLY.get(catalogue), note=note)


def _figures(ratings: RatingSet, capacity: int) -> dict[str, float]:
    counts = _counts(ratings)
    return {
        "users": float(ratings.person_count),
        "items": float(ratings.item_count),
        "ratings": float(ratings.values.size),
        "user features": float(ratings.user_features.shape[1]),
        "item features": float(ratings.item_features.shape[1]),
        "density %": 100 * ratings.values.size / (ratings.person_count * ratings.item_count),
        _WITHIN: 100 * float((counts <= capacity).mean()),
    }
