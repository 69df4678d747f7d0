"""Unusable lines: skipped and reported up to a maximum share; with more of them the file is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from secemb_tools.errors import DatasetError

if TYPE_CHECKING:  # every rating set has a report, even if polars is not needed
    import polars as pl

SHARE = 0.01  # maximum share of a file's lines that may be skipped
_SHOWN = 40  # characters of a value in a message
_TAIL = 0.01  # share of the ratings at each end that is excluded from nearly all
_FAR = 3.0  # ranges of nearly all


class FaultFacts(TypedDict):
    """One reason why lines were skipped, with the first of them."""

    file: str
    reason: str
    count: int
    line: int
    value: str | None


class ReportFacts(TypedDict):
    """The lines read and skipped."""

    lines: int
    skipped: int
    faults: list[FaultFacts]
    duplicates: int
    unlisted_items: int
    unlisted_people: int
    far_ratings: list[FaultFacts]


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why lines were skipped, with the first of them."""

    source: str
    reason: str
    count: int
    line: int
    value: str | None

    def __str__(self) -> str:
        """Return place, reason and value."""
        value = "" if self.value is None else f" ({self.value!r})"
        return f"{self.source}, line {self.line}: {self.reason}{value}"

    def as_json(self) -> FaultFacts:
        """Return the fault as plain data."""
        return {
            "file": self.source,
            "reason": self.reason,
            "count": self.count,
            "line": self.line,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class ReadReport:
    """The lines of a rating set read and skipped."""

    lines: int = 0  # of the files with the ratings
    faults: tuple[Fault, ...] = ()
    duplicates: int = 0  # earlier ratings of the same pair of user and item
    unlisted_items: int = 0  # rated, but missing from the list of items
    unlisted_people: int = 0
    far: tuple[Fault, ...] = ()  # ratings that are kept, but may be errors

    @property
    def skipped(self) -> int:
        """Return the number of skipped lines."""
        return sum(fault.count for fault in self.faults)

    def sentences(self) -> list[str]:
        """Return the report as sentences."""
        found = [f"skipped {fault.count:,}, first {fault}" for fault in self.faults]
        if self.duplicates:
            found.append(f"{self.duplicates:,} duplicate pairs of user and item: the last one counts")
        if self.unlisted_items:
            found.append(f"{self.unlisted_items:,} items are not in the list of items: kept without a title")
        if self.unlisted_people:
            found.append(f"{self.unlisted_people:,} people are not in the list of people: kept without features")
        for fault in self.far:
            found.append(
                f"kept {fault.count:,}, first {fault}. If this is a mistake, correct or remove it: it stretches "
                "the model's scale, and its squared error dominates"
            )
        return found

    def as_json(self) -> ReportFacts:
        """Return the report as plain data."""
        return {
            "lines": self.lines,
            "skipped": self.skipped,
            "faults": [one.as_json() for one in self.faults],
            "duplicates": self.duplicates,
            "unlisted_items": self.unlisted_items,
            "unlisted_people": self.unlisted_people,
            "far_ratings": [one.as_json() for one in self.far],
        }


def find_faults(source: str, checked: "pl.DataFrame", fixes: Mapping[str, str], *, share: float) -> tuple[Fault, ...]:
    """Return the faults of a file, or refuse it if more than the maximum share of its lines is unusable, or all.

    `checked` has one row per line: `line`, `reason` (null if the line is good) and `value`.
    """
    import polars as pl

    bad = checked.filter(pl.col("reason").is_not_null())
    if not bad.height:
        return ()
    first = bad.group_by("reason", maintain_order=True).agg(pl.len(), pl.col("line").first(), pl.col("value").first())
    faults = tuple(
        Fault(source=source, reason=reason, count=count, line=line, value=None if value is None else value[:_SHOWN])
        for reason, count, line, value in first.rows()
    )
    part = bad.height / checked.height
    if part > share or bad.height == checked.height:
        worst = max(faults, key=lambda fault: fault.count)  # in ties, the first
        allow = f", or allow more with --junk {_rounded_up(part):g}" if bad.height < checked.height else ""
        raise DatasetError(
            f"{worst}; {bad.height:,} of {checked.height:,} lines are invalid, and at most {share:.3g} of them "
            f"may be skipped: {fixes.get(worst.reason, 'correct them')}{allow}"
        )
    return faults


def find_far(source: str, good: "pl.DataFrame") -> tuple[Fault, ...]:
    """Return the ratings further from nearly all others than three times their range, if any.

    `good` has one row per line: `line`, `rating` and `written rating`. They may be correct, so they are only reported.
    """
    import polars as pl

    rating = pl.col("rating")
    ends = good.select(
        low=rating.quantile(_TAIL, interpolation="higher"), high=rating.quantile(1 - _TAIL, interpolation="lower")
    )
    low, high = ends.row(0)
    if low is None or high < low:
        return ()
    room = _FAR * ((high - low) or max(1.0, abs(high)))  # if nearly all are equal, their size
    far = good.filter((rating > high + room) | (rating < low - room))
    if not far.height:
        return ()
    reason = f"the rating is far from nearly all others, which are {low:g} to {high:g}"
    line, value = far.select("line", "written rating").row(0)
    return (Fault(source=source, reason=reason, count=far.height, line=line, value=str(value)[:_SHOWN]),)


def _rounded_up(part: float) -> float:
    return min(1.0, (int(part * 100) + 1) / 100)
