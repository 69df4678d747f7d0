"""The paper's table of parameters, and its figure of the share of item embeddings."""

from collections.abc import Iterator

import numpy as np

from secemb_lab.bench import device_models
from secemb_lab.bench.device_models import SIDES
from secemb_lab.paper.compression.reductions import MODELS, title_of
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_sdk.models import registry
from secemb_sdk.models.registry import KnownFeatures
from secemb_tools.catalogues import CATALOGUES

_CAPTION = """\
How many numbers an update has: in the rows of all items, in those of the items that a person has rated on average (from
the paper's own counts of ratings and people), and in the dense part. The share is that of the rows among all numbers;
the paper shows it as a picture, for DeepFM on ML25M and Yelp with vectors of 32 and of 64.
"""
_DIFFERS = "The paper's size does not follow from its own number of items, people and ratings."
_FIGURE_SETS, _FIGURE_DIMENSIONS = ("ML25M", "Yelp"), (32, 64)


@table("parameters", title="Size of dense and sparse parameters", night_seconds=15)
def make(settings: Settings, progress: Progress) -> Body:
    """Count the numbers of the product's own models."""
    return Body(caption=" ".join(_CAPTION.split()), cells=[*_sizes(), *_shares()])


def _sizes() -> Iterator[Cell]:
    for name in MODELS:
        for one in CATALOGUES:
            model = device_models.make(name, one.name)
            rated = _printed_count("ratings", one.name) // _printed_count("users", one.name)
            counts = {
                "# Sparse": one.items * model.row_width,
                "# Non-zero Spr.": rated * model.row_width,
                "# Dense": model.dense_size,
            }
            for what, count in counts.items():
                row = f"{title_of(name)} / {what}"
                papers = printed("tab:paramsize", row, one.name)
                yield Cell(row=row, column=one.name, ours=float(count), paper=papers, note=_DIFFERS)
            share = 100 * counts["# Sparse"] / (counts["# Sparse"] + model.dense_size)
            yield Cell(row=f"{title_of(name)} / share of rows, %", column=one.name, ours=share)


def _shares() -> Iterator[Cell]:
    """Yield the shares of the paper's picture."""
    for one in CATALOGUES:
        if one.name in _FIGURE_SETS:
            for dimension in _FIGURE_DIMENSIONS:
                model = registry.find("deepfm").make(dimension=dimension, features=_features(one.name))
                numbers = one.items * model.row_width
                share = 100 * numbers / (numbers + model.dense_size)
                yield Cell(row=f"DeepFM, d={dimension} / share of rows, %", column=one.name, ours=share)


def _features(catalogue: str) -> KnownFeatures:
    sides = SIDES[catalogue]
    return KnownFeatures(
        np.zeros(sides.user_features, np.uint8), lambda items: np.zeros((items.size, sides.item_features), np.uint8)
    )


def _printed_count(what: str, catalogue: str) -> int:
    value = printed("tab:datastat", catalogue, what)
    if not isinstance(value, float | int):
        raise TypeError(f"the paper's number of {what} is no number")
    return int(value)
