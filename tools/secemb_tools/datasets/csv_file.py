"""Ratings in a CSV file: Amazon's, or your own.

    own      a header with user, item and rating in any order (user_id, movieId, asin, stars … are recognised too),
             or no header and the three in this order; a fourth column is the time, in seconds or as an ISO date
    Amazon   no header: user,item,rating,time as in 2014, or item,user,rating,time as in 2018

Ids of people and items may be any text. There are no features.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

import numpy as np

from secemb_tools import output
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.errors import DatasetError

NAMES = {
    "user": ("user", "userid", "person", "reviewerid", "customer", "customerid"),
    "item": ("item", "itemid", "movieid", "asin", "parentasin", "businessid", "product", "productid"),
    "rating": ("rating", "stars", "score", "value", "overall"),
    "time": ("time", "timestamp", "unixreviewtime", "date"),
}
_PRODUCT = re.compile(r"(B[0-9A-Z]{9}|[0-9]{9}[0-9X])")  # of Amazon: its own code, or the ISBN of a book
_OWN_CODE = re.compile(r"B[0-9A-Z]{9}")
_REVIEWER = re.compile(r"A[0-9A-Z]{9,}")
_LOOKED_AT = 1000  # lines that decide the order of columns without a header
_NAME = 80  # longest name of a set: it becomes part of a task's name
_FIX = "a rating file has the columns user, item and rating, in this order or named in a header"
_TIME_FIX = "write seconds, or a date such as 2018-07-07 or 2018-07-07 22:09:11"

Line = tuple[str, str, float, int]
Places = tuple[int, int, int, int | None]  # of user, item, rating and time


def read_table(path: Path) -> RatingSet:
    """Return the ratings of a CSV file; of two ratings for the same item the last one counts."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return collect(_name_of(path), _lines(path, csv.reader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read as CSV; {_FIX}") from error


def collect(name: str, lines: Iterator[Line]) -> RatingSet:
    """Return ratings of people and items that are numbered in order of appearance."""
    people: dict[str, int] = {}
    items: dict[str, int] = {}
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for person, item, rating, time in lines:
        place = people.setdefault(person, len(people)), items.setdefault(item, len(items))
        found[place] = rating, time
    if not found:
        raise DatasetError(f"{name} has no ratings; {_FIX}")
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


def _name_of(path: Path) -> str:
    """Return the file's name as it may stand in the names of tasks and directories."""
    return re.sub(r"[^ -~]", "_", path.stem)[:_NAME]


def _lines(path: Path, rows: Iterator[list[str]]) -> Iterator[Line]:
    first = next(rows, None)
    if first is None:
        raise DatasetError(f"{path} is empty; {_FIX}")
    places, begin = _named(first), 2
    if places is None:
        begun = [first, *islice(rows, _LOOKED_AT - 1)]
        places, begin = _guessed(path, begun), 1
        rows = chain(begun, rows)
    for number, row in enumerate(rows, start=begin):
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


def _guessed(path: Path, rows: Sequence[Sequence[str]]) -> Places:
    """Return the columns of a file without a header, and print them: user first, except in Amazon's of 2018."""
    first = rows[0]
    if len(first) < 3 or not _is_number(first[2]):
        raise DatasetError(f"{path}, line 1: neither a header nor a rating; {_FIX}")
    time = 3 if len(first) > 3 else None
    user, item = (1, 0) if _has_products_first(rows) else (0, 1)
    order = ("user", "item") if user == 0 else ("item", "user")
    words = ", ".join([*order, "rating"] + ([] if time is None else ["time"]))
    output.note(f"{path} has no header: its columns are read as {words}")
    return user, item, 2, time


def _has_products_first(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first column has Amazon's products. Ten digits alone may be anything, even a user."""
    pairs = [(row[0], row[1]) for row in rows if len(row) > 1]
    if not all(_PRODUCT.fullmatch(first) for first, _ in pairs) or all(_PRODUCT.fullmatch(one) for _, one in pairs):
        return False
    return any(_OWN_CODE.fullmatch(first) for first, _ in pairs) or all(_REVIEWER.fullmatch(one) for _, one in pairs)


def _line(path: Path, number: int, row: Sequence[str], places: Places) -> Line:
    user, item, rating, time = places
    try:
        value = float(row[rating])
        if not abs(value) < 1e6:
            raise ValueError
        person, what, when = row[user], row[item], "" if time is None else row[time]
    except (IndexError, ValueError):
        raise DatasetError(f"{path}, line {number}: not a user, an item and a rating; {_FIX}") from None
    try:
        return person, what, value, _seconds(when)
    except (ValueError, OverflowError):
        raise DatasetError(f"{path}, line {number}: the time cannot be read; {_TIME_FIX}") from None


def _seconds(text: str) -> int:
    """Return a time in seconds; zero if it is empty, UTC if it has no time zone."""
    text = text.strip()
    if not text:
        return 0
    if _is_digits(text):
        found = int(text)
    elif ":" in text or text.count("-") == 2:
        moment = datetime.fromisoformat(text)
        found = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    else:
        found = int(float(text))
    if abs(found) >= 2**63:
        raise OverflowError
    return found


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < 1e6
    except ValueError:
        return False
