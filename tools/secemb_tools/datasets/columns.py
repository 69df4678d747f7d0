"""The columns of a table: found by name, given by the caller, or guessed if there is no header."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from secemb_tools import output
from secemb_tools.errors import DatasetError

NAMES = {
    "user": (
        *("user", "userid", "uid", "person", "personid", "reviewer", "reviewerid", "customer", "customerid"),
        *(
            "member",
            "memberid",
            "account",
            "accountid",
            "visitor",
            "visitorid",
            "profile",
            "profileid",
            "session",
            "sessionid",
        ),
    ),
    "item": (
        *("item", "itemid", "iid", "movie", "movieid", "film", "filmid", "asin", "parentasin", "product", "productid"),
        *("business", "businessid", "book", "bookid", "isbn", "song", "songid", "track", "trackid", "artist"),
        *("artistid", "venue", "venueid", "poi", "poiid", "location", "locationid", "game", "gameid", "app", "appid"),
        *("article", "articleid", "news", "newsid", "recipe", "recipeid", "anime", "animeid", "joke", "jokeid"),
        *("show", "showid", "video", "videoid", "sku", "place", "placeid"),
    ),
    "rating": (
        *("rating", "ratings", "stars", "star", "score", "value", "overall", "preference", "bookrating", "rate"),
        *("grade", "userrating", "reviewrating", "reviewscore"),
    ),
    "time": (
        *("timestamp", "time", "unixreviewtime", "date", "datetime", "reviewtime", "ts", "unixtime"),
        *("createdat", "created", "ratedat"),
    ),
    "title": ("title", "name", "itemname", "movietitle", "producttitle", "booktitle", "itemtitle"),
}
FIX = "name the columns user, item and rating (or only user and item), or select them with --columns"
_PRODUCT = re.compile(r"(B[0-9A-Z]{9}|[0-9]{9}[0-9X])")  # Amazon's product code, or the ISBN of a book
_OWN_CODE = re.compile(r"B[0-9A-Z]{9}")
_REVIEWER = re.compile(r"A[0-9A-Z]{9,}")
_MOMENT = re.compile(r"\d{9,}(\.\d+)?|\d{4}-\d\d-\d\d.*")  # seconds (1973 or later), or a date
_ORDER = ("user", "item", "rating", "time")  # of a table, usually


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a table's columns."""

    user: str
    item: str
    rating: str | None = None
    time: str | None = None
    title: str | None = None


def parse_columns(text: str) -> dict[str, str]:
    """Return the columns in `user=…,item=…,rating=…,time=…`."""
    pairs = [part.partition("=") for part in text.split(",")]
    found = {kind.strip(): name.strip() for kind, _, name in pairs}
    if len(found) < len(pairs) or not all(found.values()) or not found.keys() <= NAMES.keys():
        raise DatasetError(
            f"--columns {text} is invalid; write user=NAME,item=NAME,rating=NAME,time=NAME, "
            "or numbers of columns: user=1,item=2"
        )
    return found


def known_columns(names: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the given columns and those with common names; if user and item are given, only the given ones."""
    plain = [_plain(name) for name in names]
    found = {}
    for kind, usual in () if given and given.keys() >= {"user", "item"} else NAMES.items():
        place = next((plain.index(name) for name in usual if name in plain), None)
        if place is not None:
            found[kind] = names[place]
    for kind, name in (given or {}).items():
        exact = name if name in names else next((one for one in names if _plain(one) == _plain(name)), None)
        if exact is None and name.isdecimal() and 1 <= int(name) <= len(names):
            exact = names[int(name) - 1]
        if exact is not None:
            found[kind] = exact
    return found


def find_columns(source: str, names: Sequence[str], given: Mapping[str, str] | None = None) -> Columns:
    """Return the columns of a table with a header."""
    found = known_columns(names, given)
    listed = ", ".join(names)
    for kind, name in (given or {}).items():
        if kind not in found:
            raise DatasetError(f"{source} has no column {name!r} for {kind}; its columns are {listed}")
    if "item" not in found and "title" in found:
        found["item"] = found["title"]  # items that are known by their titles alone
    example = quote(",".join(f"{kind}={name}" for kind, name in zip(_ORDER, names, strict=False)))
    if missing := [kind for kind in ("user", "item") if kind not in found]:
        raise DatasetError(
            f"{source} has no column recognised as {' or '.join(missing)}; its columns are {listed}; {FIX}, "
            f"for example --columns {example}"
        )
    unused = [name for name in names if name not in found.values()]
    if "rating" not in found and unused and not (given or {}).keys() >= {"user", "item"}:
        output.note(
            f"{source} has no column recognised as rating, so each line is read as a choice (implicit feedback); "
            f"not used: {', '.join(unused)}; if one of these has ratings or times, select it with --columns"
        )
    return Columns(**found)


def guess_columns(source: str, rows: Sequence[Sequence[str | None]]) -> Columns:
    """Guess the columns of a table without a header and print a note: user first, except in Amazon's files of 2018."""
    filled = [[cell or "" for cell in row] for row in rows]
    width = len(filled[0])
    if width > 4:
        raise DatasetError(
            f"{source} has {width} columns and no header; select them, for example "
            "--columns user=1,item=2,rating=3,time=4"
        )
    if width < 2:
        raise DatasetError(f"{source} has a single column; {FIX}")
    order = ["item", "user"] if _has_products_first(filled) else ["user", "item"]
    if width == 3:
        order.append("time" if _are_mostly(_MOMENT, [row[2] for row in filled]) else "rating")
    elif width == 4:
        swapped = _are_mostly(_MOMENT, [row[2] for row in filled]) and not _are_mostly(_MOMENT, [r[3] for r in filled])
        order += ["time", "rating"] if swapped else ["rating", "time"]
    output.note(f"{source} has no header: its columns are read as {', '.join(order)}")
    return Columns(**{kind: str(place) for place, kind in enumerate(order, start=1)})


def _plain(name: str) -> str:
    """Return a name in lower case, without type and punctuation."""
    return re.sub(r"[^a-z0-9]", "", without_type(name).lower())


def without_type(name: str) -> str:
    """Return a name without the type that RecBole appends (user_id:token)."""
    return re.sub(r":(token|float)(_seq)?$", "", name.strip())


def _are_mostly(pattern: re.Pattern[str], cells: Sequence[str]) -> bool:
    return sum(pattern.fullmatch(cell.strip()) is not None for cell in cells) > 0.5 * len(cells)


def _has_products_first(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first column has Amazon's products. Ten digits alone may also be a user."""
    pairs = [(row[0], row[1]) for row in rows if row[1]]
    if not all(_PRODUCT.fullmatch(first) for first, _ in pairs) or all(_PRODUCT.fullmatch(one) for _, one in pairs):
        return False
    return any(_OWN_CODE.fullmatch(first) for first, _ in pairs) or all(_REVIEWER.fullmatch(one) for _, one in pairs)
