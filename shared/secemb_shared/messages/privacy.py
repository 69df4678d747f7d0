"""A task's privacy guarantee: how updates are clipped, how much noise each server adds, and when the task stops.

Each kind of round has its own budget line, because their sums are over different things. In a task with noise, a kind
without a line has no rounds. docs/privacy.md explains the numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Self

from secemb_shared.errors import SecEmbError, SpecError
from secemb_shared.messages import canonical
from secemb_shared.privacy.mechanism import Mechanism

USER, RECORD = "user", "record"
LARGEST_EPSILON = 1000  # of a budget; a larger one would guarantee nothing


@dataclass(frozen=True, kw_only=True)
class BudgetLine:
    """The noise of one kind of round, and the total budget of all rounds of this kind."""

    clip: int  # Δ₂ in steps: rows and dense part together, or rows alone, or the numbers of a secure sum
    multiplier: str  # σ/Δ₂ of each server's noise
    epsilon: str

    def mechanism(self, clip: int, *, parts: int = 1) -> Mechanism:
        """Return the noise for a part that is clipped to `clip`."""
        return Mechanism(clip=clip, multiplier=Fraction(self.multiplier), parts=parts)

    def check(self) -> None:
        """Refuse invalid numbers and noise that cannot be drawn."""
        if [type(self.clip), type(self.multiplier), type(self.epsilon)] != [int, str, str]:
            raise SpecError("a budget line must have an integer clip, and a multiplier and an epsilon as strings")
        canonical.decimal(self.multiplier)
        if not 0 < canonical.decimal(self.epsilon) <= LARGEST_EPSILON:
            raise SpecError(f"a budget's epsilon must be above 0 and at most {LARGEST_EPSILON:,}")


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy against each single server."""

    unit: str  # user: everything that a device uploads in a round; record: the contribution of each rating
    delta: str  # of each budget line
    train: BudgetLine
    survey: BudgetLine | None = None
    evaluate: BudgetLine | None = None
    dense_clip: int = 0  # of the dense part, in steps, if it is clipped separately from the rows; 0: clipped together
    sampling_rate: str = ""  # probability with which a device randomly decides to take part; empty: nothing is assumed

    def __post_init__(self) -> None:
        try:
            self._check()
        except SpecError:
            raise
        except SecEmbError as error:
            raise SpecError(str(error)) from error

    def line(self, kind: str) -> BudgetLine | None:
        """Return the budget line of a kind of round; if there is none, there are no such rounds."""
        return {"train": self.train, "survey": self.survey, "evaluate": self.evaluate}[kind]

    def longest(self, capacity: int) -> int:
        """Return the maximum length of a whole update, in steps: of one user, or of this many records."""
        parts = math.isqrt(self.train.clip**2 + self.dense_clip**2) + 1
        return parts * (capacity if self.unit == RECORD else 1)

    @property
    def rows(self) -> Mechanism:
        """Return the noise on each row."""
        return self.train.mechanism(self.train.clip, parts=self._parts)

    @property
    def dense(self) -> Mechanism:
        """Return the noise on each number of the dense part."""
        return self.train.mechanism(self.dense_clip or self.train.clip, parts=self._parts)

    def sums(self, kind: str) -> Mechanism | None:
        """Return the noise on the secure sum of a survey or an evaluation; None if there are no such rounds.

        A device's vector is clipped as a whole. One more rating changes it into another such vector, and two vectors of
        non-negative numbers are up to √2 clips apart.
        """
        line = self.line(kind)
        if line is None:
            return None
        return line.mechanism(line.clip, parts=2 if self.unit == RECORD else 1)

    @property
    def _parts(self) -> int:
        return 2 if self.dense_clip else 1

    def fields(self) -> dict[str, Any]:
        """Return the group as it appears in a task; a missing line is an empty group."""
        return asdict(self) | {"survey": _group(self.survey), "evaluate": _group(self.evaluate)}

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Self:
        """Parse a group; unknown and missing members are refused."""
        names = {"unit", "delta", "train", "survey", "evaluate", "dense_clip", "sampling_rate"}
        if set(found) != names:
            raise SpecError("privacy has unknown or missing fields")
        lines = {kind: _read_line(found[kind]) for kind in ("train", "survey", "evaluate")}
        return cls(**{**found, **lines})

    def _check(self) -> None:
        kinds = [type(member) for member in (self.dense_clip, self.unit, self.delta, self.sampling_rate)]
        if kinds != [int, str, str, str]:
            raise SpecError("privacy fields must be integers, strings or budget lines")
        if not isinstance(self.train, BudgetLine):
            raise SpecError("privacy needs a budget line for training")
        if self.unit not in (USER, RECORD):
            raise SpecError(f"the unit of privacy must be {USER} or {RECORD}")
        if not 0 < canonical.decimal(self.delta) < 1:
            raise SpecError("delta must be between 0 and 1, and should be well below 1 / number of users")
        if self.sampling_rate and not 0 < canonical.decimal(self.sampling_rate) <= 1:
            raise SpecError("a sampling rate must be above 0 and at most 1, or empty")
        for line in (self.train, self.survey, self.evaluate):
            if line is not None:
                line.check()
        _ = self.rows, self.dense, self.sums("survey"), self.sums("evaluate")  # refuse noise that cannot be drawn


def _group(line: BudgetLine | None) -> dict[str, Any]:
    return {} if line is None else asdict(line)


def _read_line(found: Any) -> BudgetLine | None:
    if found == {}:
        return None
    if not isinstance(found, Mapping) or set(found) != {"clip", "multiplier", "epsilon"}:
        raise SpecError("a budget line must have a clip, a multiplier and an epsilon, or be an empty object")
    return BudgetLine(**found)
