"""A section of the report on scale: one table, its goals and remarks, and the figures behind them.

To add a section, write a module with a function `measure(*, quick: bool) -> Section`, and enter it in `SECTIONS` of
`report.py`. A quick run must take a few seconds, and its goals must not depend on time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from secemb_lab.report.report_file import Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The measurements of one part of the report."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal]
    figures: Sequence[dict[str, Any]]  # one mapping of names to plain numbers and words for each measurement
    remarks: Sequence[str] = field(default_factory=list)  # each a sentence


Measure = Callable[..., Section]
