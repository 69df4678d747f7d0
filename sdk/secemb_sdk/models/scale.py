"""The scale of a task's ratings, and how models see it.

A model learns from z = (rating − centre) / spread, and predicts z. Thus rates, penalties and limits mean the same for
stars from 1 to 5, for points from 0 to 100 and for likes.
"""

from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from secemb_sdk.models.interface import Floats
from secemb_sdk.models.limits import Doubles
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal, signed_decimal
from secemb_shared.messages.spec import SQUARED

Number = TypeVar("Number", float, Floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The range of ratings. Choices without ratings have no scale and are unchanged."""

    centre: float = 0.0
    spread: float = 1.0
    lowest: float = -np.inf
    highest: float = np.inf

    @classmethod
    def of(cls, task: TaskSpec) -> Self:
        """Return the scale of a task."""
        if task.loss != SQUARED:
            return cls()
        known = {"lowest": task.lowest, "highest": task.highest}
        ends = {name: signed_decimal(end) for name, end in known.items() if end}
        return cls(centre=signed_decimal(task.centre), spread=decimal(task.spread), **ends)

    def standardise(self, rating: float) -> float:
        """Return a rating as models see it."""
        return (rating - self.centre) / self.spread

    def restore(self, score: Number) -> Number:
        """Convert a prediction to a rating; it may exceed the scale, so that a ranking has no ties."""
        return self.centre + self.spread * score

    def cut(self, scores: Doubles) -> Doubles:
        """Clip a prediction to the scale: there are no ratings beyond it."""
        return np.clip(scores, self.standardise(self.lowest), self.standardise(self.highest))
