"""MovieLens 100K and 1M in the files that GroupLens publishes.

    100K   u.data  u.user  u.item  u.occupation   separated by tabs and by |
    1M     ratings.dat  users.dat  movies.dat     separated by ::

A person's features are gender, age and occupation, each as one of many (2 + 61 + 21 in 100K, where an age is a year;
2 + 7 + 21 in 1M, where it is a range). An item's are its genres (19 in 100K, one of them "unknown"; 18 in 1M).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from secemb_shared.errors import SecEmbError
from secemb_shared.randomness import Indices
from secemb_tools.datasets.ratings import Features, RatingSet

GENRES_100K = 19
OCCUPATIONS_1M = 21
ENCODING = "latin-1"  # titles have accents


class DatasetError(SecEmbError, ValueError):
    """A directory does not hold a rating set that is known here."""


def read_movielens(path: Path) -> RatingSet:
    """Return the set in this directory: 100K or 1M, whichever its files say."""
    readers: dict[str, Callable[[Path], RatingSet]] = {"u.data": _read_100k, "ratings.dat": _read_1m}
    for name, read in readers.items():
        if (path / name).is_file():
            return read(path)
    raise DatasetError(
        f"{path} holds neither u.data nor ratings.dat; "
        "download ml-100k.zip or ml-1m.zip from grouplens.org/datasets/movielens, unpack it and give its directory"
    )


def _read_100k(path: Path) -> RatingSet:
    people, films = _lines(path / "u.user", "|"), _lines(path / "u.item", "|")
    occupations = [line[0] for line in _lines(path / "u.occupation", "|")]
    genders, ages = [line[2] for line in people], [int(line[1]) for line in people]
    user_features = np.hstack(
        [_one_of(genders, ["F", "M"]), _one_of(ages, sorted(set(ages))), _one_of([p[3] for p in people], occupations)]
    )
    item_features = np.array([line[-GENRES_100K:] for line in films], dtype=np.uint8)
    return _rating_set("ML100K", _lines(path / "u.data", "\t"), people, films, user_features, item_features)


def _read_1m(path: Path) -> RatingSet:
    people, films = _lines(path / "users.dat", "::"), _lines(path / "movies.dat", "::")
    ages = [int(line[2]) for line in people]
    occupations = [int(line[3]) for line in people]
    user_features = np.hstack(
        [
            _one_of([line[1] for line in people], ["F", "M"]),
            _one_of(ages, sorted(set(ages))),
            _one_of(occupations, range(OCCUPATIONS_1M)),
        ]
    )
    of_films = [line[2].split("|") for line in films]
    genres = sorted({genre for film in of_films for genre in film})
    item_features = np.array([[genre in film for genre in genres] for film in of_films], dtype=np.uint8)
    return _rating_set("ML1M", _lines(path / "ratings.dat", "::"), people, films, user_features, item_features)


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
    )


def _lines(path: Path, separator: str) -> list[list[str]]:
    """Return the fields of every line that is not empty."""
    try:
        text = path.read_text(encoding=ENCODING)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read; unpack the whole archive of the set") from error
    return [line.split(separator) for line in text.split("\n") if line]


def _positions(wanted: Sequence[object], known: Sequence[object]) -> Indices:
    """Return where in `known` each of the wanted stands."""
    place = {name: position for position, name in enumerate(known)}
    try:
        return np.array([place[name] for name in wanted], dtype=np.int64)
    except KeyError as error:
        raise DatasetError("a line names something that the other files do not list; unpack the set anew") from error


def _one_of(values: Sequence[object], choices: Sequence[object]) -> Features:
    """Return one column for each choice, with a single one in each row."""
    return np.eye(len(choices), dtype=np.uint8)[_positions(values, choices)]
