"""`make paper`: measure the tables in sequence, and write page and figures after each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from secemb_lab.bench.report import describe_machine
from secemb_lab.paper import markdown, page, stored_tables
from secemb_lab.paper.paper_table import Measurement, Progress, Settings, all_tables, unexplained
from secemb_lab.paper.stored_tables import Measured, merged
from secemb_tools import output
from secemb_tools.errors import OperationError

STORED, DOCUMENT = Path("docs/paper.json"), Path("docs/paper.md")  # of the last full run
_PAUSE = 5.0  # seconds between two notes about the same table


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperOptions:
    """The tables to measure, and the output."""

    names: Sequence[str] = ()  # none: all
    settings: Settings = field(default_factory=Settings)
    resume: bool = False  # keep existing tables
    as_json: bool = False

    @property
    def file(self) -> Path:
        """Return the file of the figures."""
        return self.settings.folder / "paper.json"

    @property
    def page(self) -> Path:
        """Return the page."""
        return self.settings.folder / "index.html"


def run(options: PaperOptions) -> int:
    """Measure and write; return 1 if a cell differs from the paper's without an explanation."""
    wanted = _chosen(options.names)
    found = _kept(options, wanted)
    missing = [one for one in wanted if one.name not in {have.table.name for have in found}]
    begin, machine = perf_counter(), describe_machine()
    _write(options, found)
    for number, one in enumerate(missing):
        later = sum(other.night_seconds for other in missing[number + 1 :])
        progress = _progress(f"{number + 1} of {len(missing)}, {one.name}", 0 if options.settings.quick else later)
        made = one.run(options.settings, progress)
        new = Measured(table=made, machine=machine, quick=options.settings.quick, seeds=options.settings.seeds)
        found = merged(found, [new], list(all_tables()))
        _write(options, found)
        output.note(f"{number + 1} of {len(missing)}, {one.name}: done in {_time(made.seconds)}")
    return _end(options, found, perf_counter() - begin)


def record(options: PaperOptions) -> int:
    """Add the tables of the folder to those of the documentation, and write its page; measure nothing."""
    new = [one for one in stored_tables.read(options.file) if not one.quick]
    found = merged(stored_tables.read(STORED), new, list(all_tables()))
    stored_tables.write(STORED, found)
    DOCUMENT.write_text(markdown.render(found), encoding="utf-8")
    output.note(f"{len(new)} of {len(found)} tables are new in {STORED}; the page is {DOCUMENT}")
    if options.as_json:
        output.show_json(stored_tables.document(found))
    return 0


def _end(options: PaperOptions, found: Sequence[Measured], seconds: float) -> int:
    faults = unexplained(one.table for one in found)
    for fault in faults:
        output.note(f"a difference without a sentence that says why: {fault}")
    tables = "1 table" if len(found) == 1 else f"{len(found)} tables"
    output.note(f"{tables} in {_time(seconds)}. Page: {options.page}, figures: {options.file}")
    if options.as_json:
        output.show_json(stored_tables.document(found))
    return 1 if faults else 0


def _chosen(names: Sequence[str]) -> list[Measurement]:
    known = all_tables()
    if unknown := [name for name in names if name not in known]:
        raise OperationError(f"--tables: there is no table {unknown[0]!r}; there are {', '.join(known)}")
    return [one for name, one in known.items() if not names or name in names]


def _kept(options: PaperOptions, wanted: Sequence[Measurement]) -> list[Measured]:
    """Return the tables of an earlier run that are not measured again."""
    again = set() if options.resume else {one.name for one in wanted}
    settings = options.settings
    return [
        one
        for one in stored_tables.read(options.file)
        if one.table.name not in again and (one.quick, one.seeds) == (settings.quick, settings.seeds)
    ]


def _write(options: PaperOptions, found: Sequence[Measured]) -> None:
    stored_tables.write(options.file, found)
    options.page.write_text(page.render(found), encoding="utf-8")


def _progress(name: str, later: float) -> Progress:
    """Return a function that reports a table's progress and the remaining time."""
    begin = perf_counter()
    last = [begin - _PAUSE]

    def tell(share: float, what: str) -> None:
        now = perf_counter()
        if now - last[0] < _PAUSE:
            return
        last[0] = now
        left = f", {_time((now - begin) * (1 - share) / share)} left" if share > 0 else ""
        after = f" and {_time(later)} for the others" if left and later >= 1 else ""
        output.note(f"{name}: {share:.0%}{left}{after}: {what}")

    return tell


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
