"""Who rated what, with the features of both, and how it is split into training and test."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices

Features = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingSet:
    """Ratings as three columns; people and items are numbered from zero."""

    name: str
    people: Indices  # (n,)
    items: Indices  # (n,)
    values: Floats  # (n,)
    user_features: Features  # (people, l_x), ones and zeros
    item_features: Features  # (items, l_y)

    @property
    def person_count(self) -> int:
        """Return how many people there are, with ratings or without."""
        return len(self.user_features)

    @property
    def item_count(self) -> int:
        """Return how many items there are, rated or not."""
        return len(self.item_features)

    def only(self, chosen: Indices) -> "RatingSet":
        """Return these ratings of the same people and items, in the order of the person and then of the item."""
        kept = chosen[np.lexsort((self.items[chosen], self.people[chosen]))]
        return replace(self, people=self.people[kept], items=self.items[kept], values=self.values[kept])

    def by_person(self) -> list[slice]:
        """Return where each person's ratings are; `only` has put them next to each other."""
        ends = np.searchsorted(self.people, np.arange(self.person_count + 1))
        return [slice(int(begin), int(end)) for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """What devices train on, and what their models are asked about."""

    train: RatingSet
    test: RatingSet


def split(ratings: RatingSet, *, seed: int, test_share: float = 0.2) -> Split:
    """Return a random split of the ratings, the same for the same seed."""
    order = np.random.default_rng([seed, 0]).permutation(ratings.values.size)
    tested = round(test_share * ratings.values.size)
    return Split(train=ratings.only(order[tested:]), test=ratings.only(order[:tested]))
