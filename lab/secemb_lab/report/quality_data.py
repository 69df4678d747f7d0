"""The data of `make quality`: public sets from a folder, samples of them, and synthetic sets for a short run."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet, Split, read_ratings, split, split_by
from secemb_tools.datasets.made_up import NAME, make_ratings

ALL, RATINGS, PEOPLE = "", "ratings", "people"  # the unit of sampling
_SAMPLED, _FEW = 31, 32  # purposes of derived seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A set, or a sample of it."""

    path: Path | None = None  # None: synthetic
    of: str = ALL
    share: float = 1.0
    without_ratings: bool = False  # keep only which items people chose

    @property
    def name(self) -> str:
        """Return the name of the set's folder."""
        return NAME if self.path is None else self.path.name

    @property
    def sample(self) -> str:
        """Return what was drawn, in words; empty for the whole set."""
        return f"{self.share:.0%} of the {self.of}".replace("%", " %") if self.of else ""

    def read(self, *, seed: int) -> RatingSet:
        """Return the set; the seed decides a sample."""
        found = _read(self.path)
        if self.of:
            found = (sample_ratings if self.of == RATINGS else sample_people)(found, self.share, seed=seed)
        return leave_ratings_out(found) if self.without_ratings else found

    def split(self, how: str, *, seed: int) -> Split:
        """Return the split of this name: a part for training, the rest to measure with."""
        ratings = self.read(seed=seed)
        return split(ratings, seed=seed) if how == "random" else split_by(how, ratings, seed=seed)


@lru_cache(maxsize=2)
def _read(path: Path | None) -> RatingSet:
    return make_ratings(people=200, items=100, most=60, seed=7) if path is None else read_ratings(path, quiet=True)


def sample_ratings(ratings: RatingSet, share: float, *, seed: int) -> RatingSet:
    """Return a share of all ratings, with the people and items that occur in it."""
    count = ratings.values.size
    return _compact(ratings, _draw(count, share, seed))


def sample_people(ratings: RatingSet, share: float, *, seed: int) -> RatingSet:
    """Return all ratings of a share of the people, with the items that occur in them."""
    chosen = _draw(ratings.person_count, share, seed)
    return _compact(ratings, np.flatnonzero(np.isin(ratings.people, chosen)))


def leave_ratings_out(ratings: RatingSet) -> RatingSet:
    """Return which items people chose, without their ratings."""
    return replace(ratings, values=np.ones_like(ratings.values), implicit=True)


def few_people(data: Split, count: int, *, seed: int) -> Split:
    """Return the split with a test of at most this many people, drawn from those who have one."""
    people = np.unique(data.test.people)
    chosen = np.random.default_rng([seed, _FEW]).permutation(people)[:count]
    return replace(data, test=data.test.only(np.flatnonzero(np.isin(data.test.people, chosen))))


def _draw(count: int, share: float, seed: int) -> Indices:
    return np.random.default_rng([seed, _SAMPLED]).permutation(count)[: round(share * count)]


def _compact(ratings: RatingSet, chosen: Indices) -> RatingSet:
    """Return these ratings, with people and items numbered again: those without any are left out."""
    part = ratings.only(chosen)
    people, by_person = np.unique(part.people, return_inverse=True)
    items, by_item = np.unique(part.items, return_inverse=True)
    return replace(
        part,
        people=by_person,
        items=by_item,
        user_features=part.user_features[people],
        item_features=part.item_features[items],
        user_ids=tuple(part.user_ids[person] for person in people) if part.user_ids else (),
        catalogue=Catalogue(),  # nothing here shows a title
    )
