"""Ratings that nobody gave, for tests that may not carry real ones: so many of them, and harder to learn."""

from pathlib import Path

import numpy as np

from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.made_up import Tastes


def made_up_ratings(*, people: int, items: int, count: int, seed: int = 1, tastes: int = 4) -> RatingSet:
    """Return ratings of so many people and items, every person with at least ten."""
    rng = np.random.default_rng(seed)
    hidden = Tastes(
        likes=rng.normal(0, 0.55, (people, tastes)),
        kinds=rng.normal(0, 1, (items, tastes)),
        by_person=rng.normal(0, 0.4, people),
        by_item=rng.normal(0, 0.5, items),
    )
    return hidden.rate(rng, *_who_rates_what(rng, people, items, count), middle=3.5, noise=0.6)


def write_as_movielens(ratings: RatingSet, directory: Path) -> Path:
    """Write the ratings as the files of MovieLens 100K, everybody with the same features; return the directory."""
    columns = zip(ratings.people, ratings.items, ratings.values, strict=True)
    files = {
        "u.data": [f"{person + 1}\t{item + 1}\t{value:.0f}\t0" for person, item, value in columns],
        "u.user": [f"{person + 1}|30|F|other|00000" for person in range(ratings.person_count)],
        "u.item": [f"{item + 1}|film|||{'|0' * 18}|1" for item in range(ratings.item_count)],
        "u.occupation": ["other"],
    }
    for name, lines in files.items():
        (directory / name).write_text("\n".join(lines) + "\n")
    return directory


def _who_rates_what(rng: np.random.Generator, people: int, items: int, count: int) -> tuple[Indices, Indices]:
    """Return pairs, none of them twice: few people rate many items, and few items are rated by many."""
    activity = rng.lognormal(0, 0.9, people)
    counts = np.clip(np.rint(activity / activity.sum() * (count - 10 * people)) + 10, 10, items // 2).astype(np.int64)
    popularity = 1 / np.arange(2, items + 2) ** 0.8
    popularity /= popularity.sum()
    what = [rng.choice(items, number, replace=False, p=popularity) for number in counts]
    return np.repeat(np.arange(people), counts), np.concatenate(what)
