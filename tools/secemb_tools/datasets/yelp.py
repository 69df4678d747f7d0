"""Yelp's academic data set: one JSON object per line, in the files that Yelp provides under its terms.

    yelp_academic_dataset_review.json     who, what, how many stars, when
    yelp_academic_dataset_business.json   in which state a business is: its one feature, as in the paper

As in the paper, only the 10,000 most active people are used, and the businesses that they rated.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from secemb_tools.datasets.csv_file import Line, collect
from secemb_tools.datasets.ratings import Features, RatingSet
from secemb_tools.errors import DatasetError

REVIEWS, BUSINESSES = "yelp_academic_dataset_review.json", "yelp_academic_dataset_business.json"
MOST_ACTIVE = 10_000
_REVIEW, _BUSINESS = ("user_id", "business_id"), ("business_id", "state")  # what is text in a line


def read_yelp(path: Path, *, people: int = MOST_ACTIVE) -> RatingSet:
    """Return the ratings of the most active people."""
    rated = Counter(person for person, _ in {(one["user_id"], one["business_id"]) for one in _reviews(path / REVIEWS)})
    chosen = set(sorted(rated, key=lambda person: (-rated[person], person))[:people])
    names: list[str] = []
    ratings = collect("Yelp", _remember(names, _ratings(path / REVIEWS, chosen)))
    return replace(ratings, item_features=_states(path / BUSINESSES, list(dict.fromkeys(names))))


def _ratings(path: Path, chosen: set[str]) -> Iterator[Line]:
    for one in _reviews(path):
        if one["user_id"] in chosen:
            yield one["user_id"], one["business_id"], float(one["stars"]), _time(one.get("date", ""))


def _remember(names: list[str], lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        names.append(line[1])
        yield line


def _states(path: Path, items: list[str]) -> Features:
    """Return one column for each state in which one of the items is."""
    states = {one["business_id"]: one["state"] for one in _objects(path, _BUSINESS)}
    try:
        own = [states[item] for item in items]
    except KeyError as error:
        raise DatasetError(f"{path} does not list every business of the reviews; unpack both files again") from error
    columns = {state: place for place, state in enumerate(sorted(set(own)))}
    return np.eye(len(columns), dtype=np.uint8)[[columns[state] for state in own]]


def _reviews(path: Path) -> Iterator[dict[str, Any]]:
    return _objects(path, _REVIEW, stars="stars")


def _objects(path: Path, texts: tuple[str, ...], *, stars: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; each has these texts, and stars where they are asked for."""
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                number += 1
                found = json.loads(line)
                if not all(isinstance(found[name], str) for name in texts):
                    raise TypeError
                if stars is not None and not math.isfinite(found[stars]):
                    raise ValueError
                yield found
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = f"{path}, line {number}: truncated or damaged" if number else f"{path} cannot be read"
        raise DatasetError(f"{where}; unpack Yelp's archive and give its directory") from error


def _time(date: str) -> int:
    try:
        return int(datetime.fromisoformat(f"{date}+00:00").timestamp())
    except ValueError:
        return 0
