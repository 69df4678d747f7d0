"""The files of a report: figures with their goals as JSON, a page of tables as Markdown, and plots as SVG."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from secemb_tools import output
from secemb_tools.errors import OperationError

Found = TypeVar("Found")  # a dataclass: everything that a report has measured
Cells = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal and its measurement."""

    name: str
    measured: float
    goal: float
    more: bool  # is better
    reached: bool

    @classmethod
    def at_most(cls, name: str, measured: float, goal: float) -> "Goal":
        """Return a goal for an error."""
        return cls(name=name, measured=measured, goal=goal, more=False, reached=measured <= goal)

    @classmethod
    def at_least(cls, name: str, measured: float, goal: float) -> "Goal":
        """Return a goal for a share."""
        return cls(name=name, measured=measured, goal=goal, more=True, reached=measured >= goal)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile(Generic[Found]):
    """How one kind of report is written and read."""

    kind: type[Found]
    goals: Callable[[Found], list[Goal]]
    plots: Callable[[Found], Iterable[tuple[str, str]]]  # names and pictures
    page: Callable[[Found, Sequence[str]], str]  # of the figures and the file names of their plots

    def document(self, found: Found) -> dict[str, Any]:
        """Return all figures as JSON types, with the goals."""
        return {**asdict(found), "goals": [asdict(one) for one in self.goals(found)]}  # type: ignore[call-overload]

    def write(self, out: Path, found: Found) -> None:
        """Write the figures, and beside them the page and the plots."""
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(self.document(found), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        pictures = {f"{out.stem}-{name}.svg": picture for name, picture in self.plots(found)}
        for name, picture in pictures.items():
            out.with_name(name).write_text(picture, encoding="utf-8")
        out.with_suffix(".md").write_text(self.page(found, list(pictures)), encoding="utf-8")

    def read(self, out: Path) -> Found | None:
        """Return the figures of an earlier report; None if there is none."""
        if not out.exists():
            return None
        try:
            return TypeAdapter(self.kind).validate_json(out.read_bytes())
        except ValidationError:
            raise OperationError(f"{out} contains no figures of this report; choose another --out") from None

    def show(self, out: Path, found: Found, *, as_json: bool) -> int:
        """Print what was written; return 1 if a goal was missed."""
        page = out.with_suffix(".md")
        if as_json:
            output.show_json(self.document(found))
        else:
            print(page.read_text(encoding="utf-8"), end="")
        output.note(f"figures written to {out}, this page to {page}, plots next to it")
        return 1 if self.missed(found) else 0

    def missed(self, found: Found) -> list[Goal]:
        """Return the goals that were not reached."""
        return [one for one in self.goals(found) if not one.reached]


def join_page(introduction: Iterable[str], sections: Mapping[str, str], pictures: Sequence[str]) -> str:
    """Return a page: paragraphs, sections by title, and plots; what is empty is left out."""
    plots = "\n\n".join(f"![{name}]({name})" for name in pictures)
    parts = {**sections, "Plots": f"{plots}\n" if plots else ""}
    return "\n".join([*filter(None, introduction), *(f"## {title}\n\n{text}" for title, text in parts.items() if text)])


def markdown(heads: Cells, rows: Iterable[Cells]) -> str:
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def goals_table(found: Sequence[Goal]) -> str:
    """Return the goals, including missed ones."""
    return markdown(
        ("goal", "wanted", "measured", ""),
        (
            (one.name, f"{'≥' if one.more else '≤'} {one.goal:.4g}", f"{one.measured:.4g}", _verdict(one.reached))
            for one in found
        ),
    )


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**MISSED**"
