"""A rating set from a directory, a file, a frame in memory, or the name of a downloaded set."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secemb_tools import output
from secemb_tools.datasets.download import ARCHIVES, FOLDER
from secemb_tools.datasets.junk import SHARE
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.errors import DatasetError

if TYPE_CHECKING:  # readers import polars, which takes a third of a second: so functions import them when called
    from secemb_tools.datasets.interactions import Listed

_PACKED = (".gz", ".zst", ".zstd")
_TABLES = (".csv", ".tsv", ".txt", ".dat", ".data", ".inter", ".parquet", ".jsonl", ".ndjson", ".json", ".tab")
_RATINGS = ("ratings", "interactions", "events", "reviews", "purchases")
_ITEMS = ("items", "movies", "products", "books", "catalogue", "catalog")
_NAME = 80  # longest name of a set: it becomes part of a task's name
_FETCH = "download a set from grouplens.org with `secemb data fetch ml-100k`, or give the file with the ratings"


def read_ratings(
    source: Any,
    *,
    columns: Mapping[str, str] | str | None = None,
    catalogue: Path | None = None,
    junk_share: float = SHARE,
    quiet: bool = False,
) -> RatingSet:
    """Return the set at this path, or in a polars or pandas frame.

    `columns` names the columns of user, item, rating and time, if they have unusual names: a mapping, or text such as
    "user=who,item=what". `catalogue` is a file with ids and titles. Lines that cannot be used are skipped up to
    `junk_share`, with a note on stderr unless `quiet`.
    """
    from secemb_tools.datasets.columns import parse_columns

    columns, items = parse_columns(columns) if isinstance(columns, str) else columns, catalogue
    if not isinstance(source, (str, Path)):
        ratings = _read_frame(source, columns, items, junk_share)
    else:
        path = Path(source)
        if str(path) in ARCHIVES and not path.exists():
            path = FOLDER / path
        if path.is_dir():
            ratings = _read_directory(path, columns, items, junk_share)
        elif path.exists():
            ratings = _read_files([path], _name_of(path), columns, items or _beside(path), junk_share)
        else:
            raise DatasetError(f"{path} not found; {_FETCH}")
    for sentence in () if quiet else ratings.report.sentences():
        output.note(f"{ratings.name}: {sentence}")
    return ratings


def read_movielens(path: Path) -> RatingSet:
    """Return the MovieLens set in this directory: 100K, 1M, 10M or 25M, depending on its files."""
    from secemb_tools.datasets import movielens

    if movielens.layout_of(path) is None:
        raise DatasetError(
            f"{path} contains neither u.data nor ratings.dat nor ratings.csv with movies.csv; download a set "
            "from grouplens.org with `secemb data fetch ml-100k`, or give the directory of an unpacked one"
        )
    return read_ratings(path)


def read_named(name: str, path: Path) -> RatingSet:
    """Return the set at this path, which must be in the layout of the named archive."""
    found = read_ratings(path)
    if path.is_file() or found.layout != name.replace("-", "").upper():
        raise DatasetError(
            f"{path} contains {found.layout if path.is_dir() else 'a table'}, not {name}; give the directory that "
            f"{name} was unpacked to, or inspect any set with `secemb data show`"
        )
    return found


def _read_directory(path: Path, columns: Mapping[str, str] | None, items: Path | None, junk_share: float) -> RatingSet:
    from secemb_tools.datasets import movielens, yelp

    name = _name_of(path)
    if columns is None and (path / yelp.REVIEWS).is_file():
        return yelp.read_yelp(path, name, share=junk_share)
    if columns is None and movielens.layout_of(path) is not None:
        return movielens.read_directory(path, name, share=junk_share)
    tables = {_stem(file): file for file in sorted(path.iterdir()) if file.is_file() and _suffix(file) in _TABLES}
    items = items or next((tables[stem] for stem in _ITEMS if stem in tables), None) or _first(path.glob("*.item"))
    rest = [file for file in tables.values() if file != items]
    if {"train", "test"} <= tables.keys():
        return _read_files([tables["train"], tables["test"]], name, columns, items, junk_share)
    chosen = next((tables[stem] for stem in _RATINGS if stem in tables), None) or _first(path.glob("*.inter"))
    if chosen is None and len(rest) == 1:
        chosen = rest[0]
    if chosen is None:
        there = ", ".join(file.name for file in rest[:5]) or "no table"
        raise DatasetError(
            f"{path} is not a known rating set: it contains {there}, and not u.data, ratings.dat, ratings.csv "
            f"or train and test files; {_FETCH}"
        )
    return _read_files([chosen], name, columns, items, junk_share)


def _read_files(
    paths: list[Path], name: str, columns: Mapping[str, str] | None, items: Path | None, junk_share: float
) -> RatingSet:
    from secemb_tools.datasets.interactions import collect
    from secemb_tools.datasets.table_file import read_table

    tables = [read_table(path, columns) for path in paths]
    known = [(table, table.columns(columns)) for table in tables]
    return collect(name, known, items=_listed(items, junk_share), share=junk_share)


def _read_frame(frame: Any, columns: Mapping[str, str] | None, items: Path | None, junk_share: float) -> RatingSet:
    from secemb_tools.datasets.interactions import collect
    from secemb_tools.datasets.table_file import table_of_frame

    table = table_of_frame(frame, "the frame")
    return collect("frame", [(table, table.columns(columns))], items=_listed(items, junk_share), share=junk_share)


def _listed(items: Path | None, junk_share: float) -> "Listed | None":
    from secemb_tools.datasets.item_list import read_items

    return None if items is None else read_items(items, share=junk_share)


def _beside(path: Path) -> Path | None:
    """Return the list of items next to a RecBole file, if there is one."""
    items = path.with_suffix(".item")
    return items if path.suffix == ".inter" and items.is_file() else None


def _first(files: Any) -> Path | None:
    return next(iter(sorted(files)), None)


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _PACKED else path.suffix.lower()


def _stem(path: Path) -> str:
    stem = path.stem if path.suffix.lower() in _PACKED else path.name
    return Path(stem).stem if Path(stem).suffix.lower() in _TABLES else stem


def _name_of(path: Path) -> str:
    """Return the name of the folder or file, in characters that a task and a directory may have."""
    name = path.resolve().name if path.is_dir() else _stem(path)
    return re.sub(r"[^ -~]", "_", name)[:_NAME] or "ratings"
