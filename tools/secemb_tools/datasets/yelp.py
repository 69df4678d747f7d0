"""Yelp's academic data set: one JSON object per line, in the files that Yelp provides under its terms.

    yelp_academic_dataset_review.json     user, business, stars, date
    yelp_academic_dataset_business.json   name and state of a business; the state is its only feature, as in the paper

As in the paper, only the 10,000 most active people are used, and the businesses that they rated.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from secemb_shared.catalogue import Catalogue
from secemb_tools.datasets.columns import Columns
from secemb_tools.datasets.interactions import collect
from secemb_tools.datasets.item_list import list_rows
from secemb_tools.datasets.junk import SHARE
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.datasets.table_file import read_json_lines
from secemb_tools.errors import DatasetError

REVIEWS, BUSINESSES = "yelp_academic_dataset_review.json", "yelp_academic_dataset_business.json"
MOST_ACTIVE = 10_000
_COLUMNS = Columns("user_id", "business_id", "stars", "date")


def read_yelp(path: Path, name: str = "yelp", *, people: int = MOST_ACTIVE, share: float = SHARE) -> RatingSet:
    """Return the ratings of the most active people."""
    for file in (path / REVIEWS, path / BUSINESSES):
        if not file.is_file() or not file.stat().st_size:
            raise DatasetError(f"{file} is missing or empty: no ratings; unpack Yelp's archive again")
    table = read_json_lines(path / REVIEWS, keys=("user_id", "business_id", "stars", "date"))
    active = table.cells.group_by("user_id").agg(pl.col("business_id").n_unique().alias("rated")).drop_nulls()
    chosen = active.sort("rated", "user_id", descending=[True, False]).head(people)["user_id"]
    who = pl.col("user_id")
    cells = table.cells.filter(who.is_null() | who.is_in(chosen.implode()))
    ratings = collect(name, [(replace(table, cells=cells), _COLUMNS)], layout="Yelp", share=share)
    return _with_businesses(ratings, path / BUSINESSES, share)


def _with_businesses(ratings: RatingSet, path: Path, share: float) -> RatingSet:
    """Return the set with the names of businesses, and one column for each state that occurs."""
    table = read_json_lines(path, keys=("business_id", "name", "state"))
    missing = pl.when(pl.col("state").is_null()).then(pl.lit("no state"))
    table = replace(table, cells=table.cells.with_columns(missing.alias("fault")))
    listed = list_rows(table, "business_id", title="name", share=share)
    row_of = {business: row for row, business in enumerate(listed.ids)}
    rows = [row_of.get(business) for business in ratings.catalogue.ids]
    states = ["" if row is None else listed.others["state"][row] for row in rows]
    columns = np.array(sorted(set(states) - {""}), dtype=object)
    return replace(
        ratings,
        item_features=(np.array(states, dtype=object)[:, None] == columns).astype(np.uint8),
        catalogue=Catalogue(
            ids=ratings.catalogue.ids,
            titles=tuple("" if row is None else listed.titles[row] for row in rows),
            others={"state": tuple(states)},
        ),
        report=replace(
            ratings.report,
            faults=(*ratings.report.faults, *listed.faults),
            unlisted_items=sum(row is None for row in rows),
        ),
    )
