"""A rating set in numbers and pictures: counts and distributions, but nothing about individuals."""

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
from typing_extensions import TypedDict

from secemb_shared.randomness import Indices
from secemb_tools.charts import WIDTH, bar_chart, line_chart
from secemb_tools.datasets.junk import ReportFacts
from secemb_tools.datasets.ratings import RatingSet

CAPACITIES = (50, 100, 200, 300, 500)
KEPT = 0.9  # share of a round's interactions that a suggested capacity keeps
_QUANTILES = (0, 10, 25, 50, 75, 90, 99, 100)
_BARS = 12  # at most, in a histogram of ratings
_LONGEST_BAR = 40


class DatasetSummary(TypedDict):
    """A rating set in numbers."""

    name: str
    kind: str | None
    layout: str
    feedback: str
    people: int
    items: int
    titles: int
    ratings: int
    density: float
    sparsity: float
    user_features: int
    item_features: int
    lowest: float
    highest: float
    mean: float
    rating_counts: dict[str, int]
    mean_ratings_per_person: float
    ratings_per_person: dict[str, float]
    first_time: str | None
    last_time: str | None
    given_test: int
    kept_by_capacity: dict[str, float]
    suggested_capacity: int
    suggested_capacity_keeps: float
    junk: ReportFacts


def describe(ratings: RatingSet) -> DatasetSummary:
    """Return the numbers of a set."""
    counts = per_person(ratings)
    density = float(ratings.values.size / (ratings.person_count * ratings.item_count))
    first, last = (None, None) if ratings.times is None else (ratings.times.min(), ratings.times.max())
    return {
        "name": ratings.name,
        "kind": ratings.kind,
        "layout": ratings.layout,
        "feedback": "implicit" if ratings.implicit else "ratings",
        "people": ratings.person_count,
        "items": ratings.item_count,
        "titles": sum(title != "" for title in ratings.catalogue.titles),
        "ratings": int(ratings.values.size),
        "density": density,
        "sparsity": 1 - density,
        "user_features": int(ratings.user_features.shape[1]),
        "item_features": int(ratings.item_features.shape[1]),
        "lowest": float(ratings.values.min()),
        "highest": float(ratings.values.max()),
        "mean": float(ratings.values.mean(dtype=np.float64)),
        "rating_counts": rating_counts(ratings),
        "mean_ratings_per_person": float(counts.mean()),
        "ratings_per_person": {f"{q} %": float(np.percentile(counts, q)) for q in _QUANTILES},
        "first_time": _date(first),
        "last_time": _date(last),
        "given_test": 0 if ratings.tested is None else int(ratings.tested.sum()),
        "kept_by_capacity": {str(capacity): kept_share(ratings, capacity) for capacity in CAPACITIES},
        "suggested_capacity": suggest_capacity(ratings),
        "suggested_capacity_keeps": kept_share(ratings, suggest_capacity(ratings)),
        "junk": ratings.report.as_json(),
    }


def per_person(ratings: RatingSet) -> Indices:
    """Return the number of ratings of each person."""
    return np.bincount(ratings.people, minlength=ratings.person_count)


def kept_share(ratings: RatingSet, capacity: int) -> float:
    """Return the share of interactions kept in a round, in which each device draws at most `capacity` of its own."""
    counts = per_person(ratings)
    return float(np.minimum(counts, capacity).sum() / counts.sum())


def suggest_capacity(ratings: RatingSet, keep: float = KEPT) -> int:
    """Return the smallest capacity that keeps at least this share of a round's interactions."""
    having = np.bincount(per_person(ratings))[::-1].cumsum()[::-1]  # people with at least 0, 1, 2 … ratings
    kept = having[1:].cumsum()
    return int(np.searchsorted(kept, keep * ratings.values.size - 1e-6)) + 1


def rating_counts(ratings: RatingSet) -> dict[str, int]:
    """Return the count of each rating, or of ten ranges if there are many different ones."""
    values, counts = np.unique(ratings.values, return_counts=True)
    if values.size <= _BARS:
        return {f"{value:g}": int(count) for value, count in zip(values, counts, strict=True)}
    counts, edges = np.histogram(ratings.values, bins=10)
    return {f"{low:g} to {high:g}": int(n) for n, low, high in zip(counts, edges[:-1], edges[1:], strict=True)}


def activity_counts(ratings: RatingSet) -> dict[str, int]:
    """Return the number of people with 1, 2 to 3, 4 to 7 … ratings."""
    counts = per_person(ratings)
    counts = counts[counts > 0]
    powers = np.log2(counts).astype(np.int64)
    found = np.bincount(powers)
    return {
        "1" if power == 0 else f"{2**power} to {2 ** (power + 1) - 1}": int(found[power])
        for power in range(int(powers.min()), found.size)
    }


def text_bars(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return a histogram for a terminal: names, and bars with shares and counts."""
    most, total = max(counts.values()), sum(counts.values())
    return [
        (name, f"{'█' * round(_LONGEST_BAR * count / most):<{_LONGEST_BAR}} {count / total:6.1%}  {count:,}")
        for name, count in counts.items()
    ]


def draw(ratings: RatingSet) -> str:
    """Return an SVG picture of the distributions, and of the share that each capacity keeps."""
    pictures = [
        bar_chart(_percent(activity_counts(ratings)), title=f"{ratings.name}: people by number of ratings", unit="%"),
        line_chart(
            {"interactions kept": [(float(m), 100 * kept_share(ratings, m)) for m in _steps(ratings)]},
            title="Interactions kept in a round, in percent",
            across="capacity m'",
            doubling=True,
            level=("90 %", 90.0),
            span=(0.0, 100.0),
        ),
    ]
    if not ratings.implicit:
        pictures.insert(0, bar_chart(_percent(rating_counts(ratings)), title=f"{ratings.name}: ratings", unit="%"))
    return _stacked(pictures)


def _percent(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: 100 * count / total for name, count in counts.items()}


def _steps(ratings: RatingSet) -> list[int]:
    """Return capacities 1, 2, 4 … up to the first that keeps everything."""
    most = int(per_person(ratings).max())
    return [2**power for power in range(max(1, most - 1).bit_length() + 1)]


def _stacked(pictures: list[str]) -> str:
    """Return one picture with these stacked vertically."""
    top, parts = 0, []
    for picture in pictures:
        height = int(picture.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1])
        parts.append(picture.replace("<svg ", f'<svg y="{top}" width="{WIDTH}" height="{height}" ', 1))
        top += height
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}">\n{"".join(parts)}</svg>\n'


def _date(seconds: int | None) -> str | None:
    """Return a time in ISO format; a number if it is outside the calendar."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)
