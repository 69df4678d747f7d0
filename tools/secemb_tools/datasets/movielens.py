"""MovieLens 100K, 1M, 10M and 25M in the files that GroupLens publishes.

    100K   u.data  u.user  u.item  u.occupation   separated by tabs and by |
    1M     ratings.dat  users.dat  movies.dat     separated by ::
    10M    ratings.dat  movies.dat                separated by ::
    25M    ratings.csv  movies.csv

A person's features are gender, age and occupation, each as one of many (2 + 61 + 21 in 100K, where an age is a year;
2 + 7 + 21 in 1M, where it is a range); 10M and 25M have no features of people. An item's are its genres (19 in 100K,
one of them "unknown"; 18 in 1M; 20 in 10M and 25M, one of them "(no genres listed)").
"""

import csv
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices
from secemb_tools.datasets.ratings import Features, RatingSet
from secemb_tools.errors import DatasetError

Doubles = npt.NDArray[np.float64]
GENRES_100K = 19
OCCUPATIONS_1M = 21
ENCODING = "latin-1"  # titles have accents
_FIX = "unpack the whole archive of the set again"


def read_movielens(path: Path) -> RatingSet:
    """Return the set in this directory: 100K, 1M, 10M or 25M, as its files say."""
    readers: tuple[tuple[str, Callable[[Path], RatingSet]], ...] = (
        ("u.data", _read_100k),
        ("users.dat", _read_1m),
        ("ratings.dat", _read_10m),
        ("movies.csv", _read_25m),
    )
    for name, read in readers:
        if (path / name).is_file():
            ratings = read(path)
            if not ratings.values.size:
                raise DatasetError(f"{path} has no ratings; {_FIX}")
            return ratings
    raise DatasetError(
        f"{path} has neither u.data nor ratings.dat nor ratings.csv with movies.csv; download a set from "
        "grouplens.org with `secemb data fetch ml-100k`, or give the directory of an unpacked one"
    )


def _read_100k(path: Path) -> RatingSet:
    people = _lines(path / "u.user", "|", fields=5, numbers=(0, 1))
    films = _lines(path / "u.item", "|", fields=5 + GENRES_100K, numbers=(0, *range(5, 5 + GENRES_100K)))
    occupations = [line[0] for line in _lines(path / "u.occupation", "|", fields=1)]
    ratings = _lines(path / "u.data", "\t", fields=4, numbers=range(4))
    genders, ages = [line[2] for line in people], [int(line[1]) for line in people]
    user_features = np.hstack(
        [_one_of(genders, ["F", "M"]), _one_of(ages, sorted(set(ages))), _one_of([p[3] for p in people], occupations)]
    )
    item_features = np.array([[genre == "1" for genre in line[-GENRES_100K:]] for line in films], dtype=np.uint8)
    return _rating_set("ML100K", ratings, people, films, user_features, item_features)


def _read_1m(path: Path) -> RatingSet:
    people = _lines(path / "users.dat", "::", fields=5, numbers=(0, 2, 3))
    films = _lines(path / "movies.dat", "::", fields=3, numbers=(0,))
    ratings = _lines(path / "ratings.dat", "::", fields=4, numbers=range(4))
    ages = [int(line[2]) for line in people]
    occupations = [int(line[3]) for line in people]
    user_features = np.hstack(
        [
            _one_of([line[1] for line in people], ["F", "M"]),
            _one_of(ages, sorted(set(ages))),
            _one_of(occupations, range(OCCUPATIONS_1M)),
        ]
    )
    item_features = _genres([line[2] for line in films])
    return _rating_set("ML1M", ratings, people, films, user_features, item_features)


def _read_10m(path: Path) -> RatingSet:
    films = _lines(path / "movies.dat", "::", fields=3, numbers=(0,))
    # The separator is two characters, for this function one that is followed by an empty field.
    numbers = _load(path / "ratings.dat", delimiter=":", columns=(0, 2, 4, 6))
    return _of_strangers("ML10M", numbers, [line[0] for line in films], _genres([line[2] for line in films]))


def _read_25m(path: Path) -> RatingSet:
    films = _films_25m(path / "movies.csv")
    numbers = _load(path / "ratings.csv", delimiter=",", columns=(0, 1, 2, 3), heads=1)
    return _of_strangers("ML25M", numbers, [line[0] for line in films], _genres([line[2] for line in films]))


def _films_25m(path: Path) -> list[list[str]]:
    """Return the films of a CSV file with a header; titles are quoted where necessary."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            return [_checked(path, rows.line_num, row, fields=3) for row in rows][1:]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read; {_FIX}") from error


def _load(path: Path, *, delimiter: str, columns: tuple[int, ...], heads: int = 0) -> Doubles:
    """Return columns of numbers; lists of strings would need gigabytes for these sets."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an empty file, which is refused below
            found: Doubles = np.loadtxt(path, delimiter=delimiter, usecols=columns, skiprows=heads, ndmin=2)
    except (OSError, ValueError, IndexError) as error:
        raise DatasetError(f"{path} cannot be read; {_FIX}") from error
    if not found.size:
        raise DatasetError(f"{path} has no ratings; {_FIX}")
    if not (np.abs(found) < 2**53).all():  # NaN, infinity, or too large for an id
        raise DatasetError(f"{path} has a value that is not a number; {_FIX}")
    return found


def _of_strangers(name: str, numbers: Doubles, films: list[str], item_features: Features) -> RatingSet:
    """Return the ratings of people without features."""
    known, people = np.unique(numbers[:, 0], return_inverse=True)
    return RatingSet(
        name=name,
        people=people.astype(np.int64),
        items=_positions([str(int(item)) for item in numbers[:, 1]], films),
        values=numbers[:, 2].astype(np.float32),
        user_features=np.zeros((known.size, 0), dtype=np.uint8),
        item_features=item_features,
        times=numbers[:, 3].astype(np.int64),
    )


def _genres(of_films: Sequence[str]) -> Features:
    """Return one column for each genre that occurs."""
    split = [set(genres.split("|")) for genres in of_films]
    names = sorted(set().union(*split))
    return np.array([[name in genres for name in names] for genres in split], dtype=np.uint8)


def _rating_set(
    name: str,
    ratings: list[list[str]],
    people: list[list[str]],
    films: list[list[str]],
    user_features: Features,
    item_features: Features,
) -> RatingSet:
    return RatingSet(
        name=name,
        people=_positions([line[0] for line in ratings], [line[0] for line in people]),
        items=_positions([line[1] for line in ratings], [line[0] for line in films]),
        values=np.array([line[2] for line in ratings], dtype=np.float32),
        user_features=user_features,
        item_features=item_features,
        times=np.array([int(line[3]) for line in ratings], dtype=np.int64),
    )


def _lines(path: Path, separator: str, *, fields: int, numbers: Sequence[int] = ()) -> list[list[str]]:
    """Return the fields of every line that is not empty; it must have this many, and whole numbers at these places."""
    try:
        text = path.read_text(encoding=ENCODING)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read; {_FIX}") from error
    return [
        _checked(path, number, line.split(separator), fields=fields, numbers=numbers)
        for number, line in enumerate(text.split("\n"), start=1)
        if line
    ]


def _checked(path: Path, number: int, line: list[str], *, fields: int, numbers: Sequence[int] = ()) -> list[str]:
    """Return a line that is complete, or refuse the file."""
    if len(line) < fields or not all(line[place].isdecimal() for place in numbers):
        raise DatasetError(f"{path}, line {number}: truncated or damaged; {_FIX}")
    return line


def _positions(wanted: Sequence[object], known: Sequence[object]) -> Indices:
    """Return the position in `known` of each of the wanted."""
    place = {name: position for position, name in enumerate(known)}
    try:
        return np.array([place[name] for name in wanted], dtype=np.int64)
    except KeyError as error:
        raise DatasetError(f"a rating names a person or an item that the other files do not list; {_FIX}") from error


def _one_of(values: Sequence[object], choices: Sequence[object]) -> Features:
    """Return one column for each choice, with a single one in each row."""
    return np.eye(len(choices), dtype=np.uint8)[_positions(values, choices)]
