"""Ratings, or choices without a rating, with the features of people and items and with a catalogue."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets.junk import ReadReport
from secemb_tools.errors import DatasetError

Features = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]

# Numbers of people, items and ratings of the sets with published figures.
KINDS = {"ML100K": (943, 1_682, 100_000), "ML1M": (6_040, 3_883, 1_000_209)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingSet:
    """Ratings as three columns; people and items are numbered from zero."""

    name: str  # of its folder or file
    people: Indices  # (n,)
    items: Indices  # (n,)
    values: Floats  # (n,), ones if the set has no ratings
    user_features: Features  # (people, l_x), ones and zeros
    item_features: Features  # (items, l_y)
    times: Indices | None = None  # (n,), seconds, if the set has them
    order: Indices | None = None  # (n,), position in the file, for ordering if times are equal or missing
    tested: Marks | None = None  # (n,), the test part of the publisher's own split
    implicit: bool = False  # no ratings, or all of them equal
    layout: str = "table"  # of the files: ML100K, ML1M, ML10M, ML25M, Yelp or table
    kind: str | None = None  # ML100K or ML1M, by files and counts; also for a part of the set
    catalogue: Catalogue = field(default_factory=Catalogue)
    user_ids: tuple[str, ...] = ()  # external ids by row; empty: a row is its own id
    report: ReadReport = field(default_factory=ReadReport)
    unseen: Mapping[str, Indices] = field(default_factory=dict)  # texts that no device has, as rows, by kind

    @property
    def person_count(self) -> int:
        """Return the number of people, with ratings or without."""
        return len(self.user_features)

    @property
    def item_count(self) -> int:
        """Return the number of items, rated or not."""
        return len(self.item_features)

    @property
    def label(self) -> str:
        """Return the name in reports: the kind of a published set, otherwise the name."""
        return self.kind or self.name

    @property
    def digest(self) -> str:
        """Return a digest of all ratings, their times and features."""
        found = hashlib.sha256()
        columns = (self.people, self.items, self.values, self.user_features, self.item_features, self.times, self.order)
        parts: list[npt.NDArray[Any] | None] = [*columns]
        for part in parts:
            if part is not None:
                found.update(f"{part.dtype.str} {part.shape} ".encode() + part.tobytes())
        return found.hexdigest()

    def person_of(self, name: str) -> int:
        """Return the row of a person by external id."""
        if not self.user_ids and name.isdecimal() and int(name) < self.person_count:
            return int(name)
        if name not in self.user_ids:
            known = ", ".join(self.user_ids[:3]) or "0, 1, 2"
            raise DatasetError(f"{self.name} has no user {name!r}; its user ids look like {known}")
        return self.user_ids.index(name)

    def only(self, chosen: Indices) -> "RatingSet":
        """Return these ratings of the same people and items, sorted by person and then by item."""
        kept = chosen[np.lexsort((self.items[chosen], self.people[chosen]))]
        return replace(
            self,
            people=self.people[kept],
            items=self.items[kept],
            values=self.values[kept],
            times=None if self.times is None else self.times[kept],
            order=None if self.order is None else self.order[kept],
            tested=None if self.tested is None else self.tested[kept],
        )

    def by_person(self) -> list[slice]:
        """Return the slice of each person's ratings, which `only` has sorted by person."""
        ends = np.searchsorted(self.people, np.arange(self.person_count + 1))
        return [slice(int(begin), int(end)) for begin, end in pairwise(ends)]
