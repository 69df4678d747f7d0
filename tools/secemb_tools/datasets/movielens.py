"""MovieLens 100K, 1M, 10M and 25M in the file formats of GroupLens; ml-latest-small has the format of 25M.

    100K   u.data  u.user  u.item  u.occupation   separated by tabs and by |
    1M     ratings.dat  users.dat  movies.dat     separated by ::
    10M    ratings.dat  movies.dat                separated by ::
    25M    ratings.csv  movies.csv

A person's features are gender, age and occupation, each as one of many (2 + 61 + 21 in 100K, where an age is a year;
2 + 7 + 21 in 1M, where it is a range); 10M and 25M have no features of people. An item's are genres (19 in 100K, one
of them "unknown"; 18 in 1M; 20 in 10M and 25M, one of them "(no genres listed)").
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from secemb_tools.datasets.columns import Columns
from secemb_tools.datasets.interactions import Listed, collect
from secemb_tools.datasets.item_list import list_rows, read_items
from secemb_tools.datasets.junk import SHARE
from secemb_tools.datasets.ratings import Features, RatingSet
from secemb_tools.datasets.table_file import Table, read_columns, read_table
from secemb_tools.errors import DatasetError

GENRES_100K = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
OCCUPATIONS_1M = 21
MARKS = {"u.data": "ML100K", "users.dat": "ML1M", "ratings.dat": "ML10M", "movies.csv": "ML25M"}
_RATINGS = ("user", "item", "rating", "time")
_COLUMNS = Columns("user", "item", "rating", "time")


def layout_of(path: Path) -> str | None:
    """Return the layout of a directory: ML100K, ML1M, ML10M or ML25M."""
    return next((layout for name, layout in MARKS.items() if (path / name).is_file()), None)


def read_directory(path: Path, name: str, *, share: float = SHARE) -> RatingSet:
    """Return the set in a directory of a known layout."""
    layout = layout_of(path)
    if layout == "ML100K":
        return _read_100k(path, name, share)
    if layout == "ML1M":
        return _read_1m(path, name, share)
    if layout == "ML10M":
        table, films = _table(path / "ratings.dat", "::", _RATINGS), _films(path / "movies.dat", share)
    else:
        table, films = (
            read_table(_there(path / "ratings.csv")),
            _with_genres(read_items(path / "movies.csv", share=share)),
        )
    columns = _COLUMNS if layout == "ML10M" else table.columns()
    people = Listed(ids=_in_order(table.cells[columns.user]))
    return collect(name, [(table, columns)], layout=layout or "ML25M", people=people, items=films, share=share)


def _read_100k(path: Path, name: str, share: float) -> RatingSet:
    users = _table(path / "u.user", "|", ("id", "age", "gender", "occupation", "zip"))
    people = list_rows(users, "id", numbers=("id", "age"), share=share)
    jobs = _table(path / "u.occupation", "\n", ("occupation",)).cells["occupation"].to_list()
    items = _table(path / "u.item", "|", ("id", "title", "date", "video", "link", *GENRES_100K))
    films = list_rows(items, "id", title="title", numbers=("id", *GENRES_100K), share=share)
    flags = np.array([films.others[genre] for genre in GENRES_100K], dtype=str).T == "1"
    genres = tuple("|".join(np.array(GENRES_100K)[film]) for film in flags)
    films = replace(films, features=flags.astype(np.uint8), others={"date": films.others["date"], "genres": genres})
    table = _table(path / "u.data", "\t", _RATINGS)
    return collect(
        name,
        [(table, _COLUMNS)],
        layout="ML100K",
        people=_with_features(people, sorted(set(people.others["age"]), key=int), jobs),
        items=films,
        share=share,
    )


def _read_1m(path: Path, name: str, share: float) -> RatingSet:
    users = _table(path / "users.dat", "::", ("id", "gender", "age", "occupation", "zip"))
    people = list_rows(users, "id", numbers=("id", "age", "occupation"), share=share)
    jobs = [str(job) for job in range(OCCUPATIONS_1M)]
    table = _table(path / "ratings.dat", "::", _RATINGS)
    return collect(
        name,
        [(table, _COLUMNS)],
        layout="ML1M",
        people=_with_features(people, sorted(set(people.others["age"]), key=int), jobs),
        items=_films(path / "movies.dat", share),
        share=share,
    )


def _films(path: Path, share: float) -> Listed:
    table = _table(path, "::", ("id", "title", "genres"))
    return _with_genres(list_rows(table, "id", title="title", numbers=("id",), share=share))


def _with_genres(films: Listed) -> Listed:
    """Return films with one column for each genre that occurs."""
    split = [set(genres.split("|")) for genres in films.others.get("genres", ())]
    names = sorted(set().union(*split))
    if not names:
        return films
    return replace(films, features=np.array([[name in own for name in names] for own in split], dtype=np.uint8))


def _with_features(people: Listed, ages: Sequence[str], jobs: Sequence[str]) -> Listed:
    of = people.others
    parts = [_one_of(of["gender"], ("F", "M")), _one_of(of["age"], ages), _one_of(of["occupation"], jobs)]
    return replace(people, features=np.hstack(parts))


def _one_of(values: Sequence[str], choices: Sequence[str]) -> Features:
    """Return one column per choice, with a one in the column of the value; a row of zeros for any other value."""
    place = {choice: column for column, choice in enumerate(choices)}
    found = np.zeros((len(values), len(choices)), dtype=np.uint8)
    for row, value in enumerate(values):
        if value in place:
            found[row, place[value]] = 1
    return found


def _in_order(users: pl.Series) -> tuple[str, ...]:
    """Return the ids of people in numerical order."""
    ids = users.drop_nulls().unique()
    numbers = pl.DataFrame({"id": ids, "number": ids.cast(pl.Int64, strict=False)}).drop_nulls()
    return tuple(numbers.filter(pl.col("number") >= 0).sort("number")["id"])


def _table(path: Path, separator: str, names: Sequence[str]) -> Table:
    return read_columns(_there(path), separator, names)


def _there(path: Path) -> Path:
    if not path.is_file():
        raise DatasetError(f"{path} not found; unpack the whole archive of the set again")
    return path
