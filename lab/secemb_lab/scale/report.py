"""`make scale`: what a server does with more than one machine, as sections of figures with goals, and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from time import perf_counter

from secemb_lab.bench.report import describe_machine
from secemb_lab.report.report_file import Goal, ReportFile, goals_table, join_page, markdown
from secemb_lab.scale.section import Measure, Section
from secemb_tools.errors import OperationError
from secemb_tools.output import note

# The module of each section, in the order of the page. Each has a function `measure(*, quick) -> Section`, and is
# imported only if its section is measured.
SECTIONS: Mapping[str, str] = {
    "engines": "secemb_lab.scale.engines",
    "large": "secemb_lab.scale.large",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Everything that the report has measured."""

    quick: bool
    machine: dict[str, str]
    sections: list[Section]


def goals(found: Scale) -> list[Goal]:
    """Return the goals of all sections."""
    return [goal for section in found.sections for goal in section.goals]


def page(found: Scale, pictures: Sequence[str]) -> str:
    """Return the report as Markdown."""
    wanted = goals(found)
    introduction = (
        "# Past one machine\n",
        f"`make scale`: {sum(one.reached for one in wanted)} of {len(wanted)} goals reached. Processor:"
        f" {found.machine['processor']}, {found.machine['cores']} cores.\n",
        "A quick run, whose times mean nothing.\n" if found.quick else "",
    )
    return join_page(introduction, {one.title: _section_page(one) for one in found.sections}, pictures)


def _section_page(section: Section) -> str:
    parts = [markdown(section.columns, section.rows), "".join(f"{one}\n" for one in section.remarks)]
    return "\n".join(filter(None, [*parts, goals_table(section.goals) if section.goals else ""]))


FILE = ReportFile(kind=Scale, goals=goals, plots=lambda _: (), page=page)


def run(out: Path, *, names: Sequence[str], quick: bool, resume: bool, as_json: bool) -> int:
    """Measure the sections, write the figures after each, and show them; return 1 if a goal is missed.

    Sections that are not measured now are kept as they are in `out`.
    """
    chosen = _chosen(names)
    found = Scale(quick=quick, machine=describe_machine(), sections=_kept(out, quick=quick))
    done = {one.name for one in found.sections} if resume else set()
    start = perf_counter()
    for name in chosen:
        if name not in done:
            found = _with(found, _load(name)(quick=quick))
            FILE.write(out, found)
            note(f"{name}: measured, {perf_counter() - start:.0f} s since the start")
    FILE.write(out, found)
    return FILE.show(out, found, as_json=as_json)


def _chosen(names: Sequence[str]) -> list[str]:
    if unknown := [one for one in names if one not in SECTIONS]:
        raise OperationError(f"--sections: unknown section {unknown[0]!r}; choose one of {', '.join(SECTIONS)}")
    return list(names or SECTIONS)


def _kept(out: Path, *, quick: bool) -> list[Section]:
    """Return the sections of an earlier report of the same length."""
    known = FILE.read(out)
    return [one for one in known.sections if one.name in SECTIONS] if known and known.quick == quick else []


def _with(found: Scale, section: Section) -> Scale:
    """Return the report with this section in its place."""
    by_name = {one.name: one for one in found.sections} | {section.name: section}
    return replace(found, sections=[by_name[name] for name in SECTIONS if name in by_name])


def _load(name: str) -> Measure:
    measure: Measure = import_module(SECTIONS[name]).measure
    return measure
