"""Converts the cells of a table to a rating set: checked, numbered, with each pair of user and item once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets.columns import FIX, Columns
from secemb_tools.datasets.junk import SHARE, Fault, ReadReport, find_far, find_faults
from secemb_tools.datasets.ratings import KINDS, Features, RatingSet
from secemb_tools.datasets.table_file import LONG, OPEN, SHORT, Table

_MISSING = ["", "nan", "null", "none", "na", "n/a", "<na>", "nat"]  # common spellings of a missing value
_STRANGE_ID = r"^-\d+(\.\d*)?$|^[\[{]|[\x00-\x08\x0a-\x1f\x7f]"  # negative, a list or an object, control characters
_LONGEST_ID = 200
_LARGEST = 1e6
_WORDS = r"[^0-9.,eE+\-\s]"
_TIME_FIX = "write seconds or milliseconds since 1970, or a date such as 2018-07-07 or 2018-07-07 22:09:11"
_FIXES = {
    SHORT: f"complete the line; {FIX}",
    LONG: "put quotes around a field that contains the separator",
    OPEN: "close the quote, or double a quote inside a field",
    "no user": f"fill in the cell; {FIX}",
    "no item": f"fill in the cell; {FIX}",
    "not a user id": "an id is a number from 0 or any text of at most 200 characters",
    "not an item id": "an id is a number from 0 or any text of at most 200 characters",
    "no rating": "fill in the cell, or read the file as implicit feedback with --columns user=…,item=…",
    "the rating is not a number": f"write a number; {FIX}",
    "the rating is out of range": "a rating is between -1,000,000 and 1,000,000; check for shifted columns",
    "the time cannot be read": _TIME_FIX,
}


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """People or items in the order of their list file, with their features."""

    ids: tuple[str, ...] = ()
    features: Features | None = None  # (ids, l)
    titles: tuple[str, ...] = ()
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


def collect(
    name: str,
    tables: Sequence[tuple[Table, Columns]],
    *,
    layout: str = "table",
    people: Listed | None = None,
    items: Listed | None = None,
    share: float = SHARE,
) -> RatingSet:
    """Return the ratings of one table, or of a training and a test table.

    Listed people and items are numbered as in the list; others follow in order of appearance.
    """
    read = [_checked(table, columns, share) for table, columns in tables]
    frame = pl.concat([part.with_columns(test=pl.lit(place > 0)) for place, (part, _, _) in enumerate(read)])
    lines = sum(table.cells.height for table, _ in tables)
    people, items = people or Listed(), items or Listed()
    who, user_ids = _numbered(frame["user"], people.ids)
    what, item_ids = _numbered(frame["item"], items.ids)
    frame = frame.with_columns(user=who, item=what).with_row_index("order")
    once = _without_repeats(frame)
    values = once["rating"].to_numpy()
    times = _seconds(once["time"])
    faults = (*people.faults, *items.faults, *(fault for _, faults, _ in read for fault in faults))
    return RatingSet(
        name=name,
        layout=layout,
        kind=layout if KINDS.get(layout) == (len(user_ids), len(item_ids), values.size) else None,
        people=once["user"].to_numpy(),
        items=once["item"].to_numpy(),
        values=values,
        user_features=_padded(people.features, len(user_ids)),
        item_features=_padded(items.features, len(item_ids)),
        times=times,
        order=once["order"].cast(pl.Int64).to_numpy(),
        tested=once["test"].to_numpy() if len(tables) > 1 else None,
        implicit=all(columns.rating is None for _, columns in tables)
        or bool(values.size > 1 and values.min() == values.max()),
        catalogue=_catalogue(frame, item_ids, items),
        user_ids=user_ids,
        report=ReadReport(
            lines=lines,
            faults=faults,
            duplicates=frame.height - once.height,
            unlisted_items=len(item_ids) - len(items.ids) if items.ids else 0,
            unlisted_people=len(user_ids) - len(people.ids) if people.ids else 0,
            far=tuple(fault for _, _, far in read for fault in far),
        ),
    )


def _checked(table: Table, columns: Columns, share: float) -> tuple[pl.DataFrame, tuple[Fault, ...], tuple[Fault, ...]]:
    """Return the valid lines as user, item, rating, time and title, the faults of the others, and outlying ratings."""
    missing = pl.lit(None, pl.String)
    cells = table.cells.select(
        "line",
        "fault",
        *(_id(table.cells[name]).alias(kind) for kind, name in (("user", columns.user), ("item", columns.item))),
        (pl.col(columns.rating) if columns.rating else missing).alias("written rating"),
        (pl.col(columns.time) if columns.time else missing).alias("written time"),
        (pl.col(columns.title) if columns.title else missing).alias("title"),
    )
    cells = cells.with_columns(
        pl.lit(1.0, pl.Float32).alias("rating")
        if columns.rating is None
        else _number("written rating").alias("rating"),
        _time(cells["written time"]).alias("time"),
    )
    rating = pl.col("rating")
    checks: list[tuple[str, str, pl.Expr]] = [
        *((words, "fault", pl.col("fault") == words) for words in (SHORT, LONG, OPEN)),
        ("no user", "user", _is_missing("user")),
        ("no item", "item", _is_missing("item")),
        ("not a user id", "user", _is_strange("user")),
        ("not an item id", "item", _is_strange("item")),
        ("no rating", "written rating", rating.is_null() & pl.col("written rating").fill_null("").eq("")),
        ("the rating is not a number", "written rating", rating.is_null() | rating.is_nan()),
        ("the rating is out of range", "written rating", rating.abs() >= _LARGEST),
        ("the time cannot be read", "written time", pl.col("time").is_null() & ~_is_missing("written time")),
    ]
    reason, value = pl.lit(None, pl.String), pl.lit(None, pl.String)
    for words, column, found in reversed(checks):
        reason = pl.when(found).then(pl.lit(words)).otherwise(reason)
        value = pl.when(found).then(None if column == "fault" else pl.col(column)).otherwise(value)
    checked = cells.with_columns(reason.alias("reason"), value.alias("value"))
    faults = find_faults(table.source, checked, _FIXES, share=share)
    good = checked.filter(pl.col("reason").is_null()) if faults else checked
    far = () if columns.rating is None else find_far(table.source, good)
    return good.select("user", "item", rating.cast(pl.Float32), "time", "title"), faults, far


def _id(cells: pl.Series) -> pl.Expr:
    """Return ids as text; 12.0, as pandas writes whole numbers beside missing ones, is 12."""
    text, whole = pl.col(cells.name), r"^(\d+)\.0$"
    if cells.head(100).str.contains(whole).any() and cells.drop_nulls().str.contains(rf"{whole}|^(?i:nan)$").all():
        return text.str.replace(whole, "$1")
    return text


def _is_missing(column: str) -> pl.Expr:
    return pl.col(column).is_null() | pl.col(column).str.to_lowercase().is_in(_MISSING)


def _is_strange(column: str) -> pl.Expr:
    return pl.col(column).str.contains(_STRANGE_ID) | (pl.col(column).str.len_chars() > _LONGEST_ID)


def _number(column: str) -> pl.Expr:
    """Return a number, which may have a decimal comma, or null."""
    text = pl.col(column).str.replace(",", ".", literal=True)
    number = text.cast(pl.Float64, strict=False)
    return pl.when(text.str.contains(_WORDS)).then(None).otherwise(number)


def _time(cells: pl.Series) -> pl.Series:
    """Return times as whole numbers in the unit of the file; dates become seconds, in UTC if they have no zone."""
    text = cells.str.strip_chars()
    found = text.cast(pl.Int64, strict=False)
    if found.null_count() > text.null_count():
        found = found.fill_null(text.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False))
    if found.null_count() > text.null_count():
        iso = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
        for pattern in ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f%:z"):
            kind = pl.Date if pattern == "%Y-%m-%d" else pl.Datetime("us", "UTC" if ":z" in pattern else None)
            found = found.fill_null(iso.str.strptime(kind, pattern, strict=False).dt.epoch("s").cast(pl.Int64))
    return found


def _seconds(times: pl.Series) -> Indices | None:
    """Return times in seconds, 0 if missing; milliseconds and smaller units are recognised by their size."""
    middle = times.drop_nulls().abs().median()
    if not isinstance(middle, float) or not times.drop_nulls().ne(0).any():
        return None
    unit = next((10**power for power, least in ((9, 1e17), (6, 1e14), (3, 1e11)) if middle >= least), 1)
    return times.fill_null(0).to_numpy() // unit


def _numbered(names: pl.Series, listed: Sequence[str]) -> tuple[pl.Series, tuple[str, ...]]:
    """Return the number of each name, and the names by number."""
    known = pl.concat([pl.Series(names.name, listed, pl.String), names]).unique(maintain_order=True)
    numbers = known.to_frame().with_row_index("row")
    rows = names.to_frame().join(numbers, on=names.name, how="left", maintain_order="left")["row"].cast(pl.Int64)
    return rows, tuple(known)


def _without_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Return each pair once: the last by time, then by position in the file. The order is kept."""
    pair = pl.col("user") * (pl.col("item").max() + 1) + pl.col("item")
    numbers = frame.select(pair.alias("pair"), "time", "order")
    if numbers["pair"].n_unique() == frame.height:
        return frame
    last = numbers.sort("time", "order", nulls_last=False).unique("pair", keep="last", maintain_order=False)["order"]
    return frame[last.sort()]


def _padded(features: Features | None, count: int) -> Features:
    """Return features for everyone; features of unlisted ones are zeros."""
    known = np.zeros((0, 0), dtype=np.uint8) if features is None else features
    return np.vstack([known, np.zeros((count - len(known), known.shape[1]), dtype=np.uint8)])


def _catalogue(frame: pl.DataFrame, ids: tuple[str, ...], listed: Listed) -> Catalogue:
    """Return ids with the titles of the list, or those beside the ratings."""
    unknown = ("",) * (len(ids) - len(listed.ids))
    titles = (*listed.titles, *unknown) if listed.titles else ()
    if not titles and frame["title"].null_count() < frame.height:
        beside = dict(frame.select("item", "title").drop_nulls().iter_rows())
        titles = tuple(beside.get(row, "") for row in range(len(ids)))
    others = {name: (*column, *unknown) for name, column in listed.others.items()}
    return Catalogue(ids=ids, titles=titles, others=others)
