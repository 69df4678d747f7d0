"""Ratings in a CSV file: Amazon's, or your own.

    own      a line with names first: user, item and rating in any order (user_id, movieId, asin, stars … will do too),
             or no names and the three in this order; a fourth column is the time
    Amazon   no names: user,item,rating,time as in 2014, or item,user,rating,time as in 2018

Names of people and items may be any text. There are no features.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from secemb_tools.datasets.errors import DatasetError
from secemb_tools.datasets.ratings import RatingSet

NAMES = {
    "user": ("user", "userid", "person", "reviewerid", "customer", "customerid"),
    "item": ("item", "itemid", "movieid", "asin", "parentasin", "businessid", "product", "productid"),
    "rating": ("rating", "stars", "score", "value", "overall"),
    "time": ("time", "timestamp", "unixreviewtime", "date"),
}
_ASIN = re.compile(r"(B[0-9A-Z]{9}|[0-9]{9}[0-9X])")
_FIX = "a rating file has the columns user, item and rating, or names for them in its first line"

Line = tuple[str, str, float, int]
Places = tuple[int, int, int, int | None]  # of user, item, rating and time


def read_table(path: Path) -> RatingSet:
    """Return the ratings of a CSV file; of an item that somebody rated twice the last rating counts."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return collect(path.stem, _lines(path, csv.reader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read as CSV; {_FIX}") from error


def collect(name: str, lines: Iterator[Line]) -> RatingSet:
    """Return ratings of people and items that are numbered as they come."""
    people: dict[str, int] = {}
    items: dict[str, int] = {}
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for person, item, rating, time in lines:
        place = people.setdefault(person, len(people)), items.setdefault(item, len(items))
        found[place] = rating, time
    if not found:
        raise DatasetError(f"{name} holds no rating; {_FIX}")
    pairs, values = np.array(list(found), dtype=np.int64), list(found.values())
    times = np.array([time for _, time in values], dtype=np.int64)
    return RatingSet(
        name=name,
        people=pairs[:, 0],
        items=pairs[:, 1],
        values=np.array([rating for rating, _ in values], dtype=np.float32),
        user_features=np.zeros((len(people), 0), dtype=np.uint8),
        item_features=np.zeros((len(items), 0), dtype=np.uint8),
        times=times if times.any() else None,  # a line without a time has a zero
    )


def _lines(path: Path, rows: Iterator[list[str]]) -> Iterator[Line]:
    first = next(rows, None)
    if first is None:
        raise DatasetError(f"{path} is empty; {_FIX}")
    places = _named(first)
    if places is None:
        places = _guessed(path, first)
        yield _line(path, 1, first, places)
    for number, row in enumerate(rows, start=2):
        if row:
            yield _line(path, number, row, places)


def _named(first: Sequence[str]) -> Places | None:
    """Return where the columns are, if the first line names them."""
    plain = [re.sub(r"[^a-z]", "", cell.lower()) for cell in first]
    where = {kind: next((plain.index(name) for name in names if name in plain), None) for kind, names in NAMES.items()}
    user, item, rating = where["user"], where["item"], where["rating"]
    if user is None or item is None or rating is None:
        return None
    return user, item, rating, where["time"]


def _guessed(path: Path, first: Sequence[str]) -> Places:
    """Return the order of a file without names: user first, unless the first column has a product of Amazon's."""
    time = 3 if len(first) > 3 and first[3].isdigit() else None
    if len(first) < 3 or not _is_number(first[2]):
        raise DatasetError(f"{path}, line 1: neither names nor a rating; {_FIX}")
    if _ASIN.fullmatch(first[0]) and not _ASIN.fullmatch(first[1]):
        return 1, 0, 2, time
    return 0, 1, 2, time


def _line(path: Path, number: int, row: Sequence[str], places: Places) -> Line:
    user, item, rating, time = places
    try:
        when = 0 if time is None or not row[time].isdigit() else int(row[time])
        value = float(row[rating])
        if not abs(value) < 1e6:
            raise ValueError
        return row[user], row[item], value, when
    except (IndexError, ValueError):
        raise DatasetError(f"{path}, line {number}: no user, item and rating; {_FIX}") from None


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < 1e6
    except ValueError:
        return False
