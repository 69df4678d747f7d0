"""`make sequences`: models of events and of texts, compared with popularity and published figures.

Cases run in sequence, each on all cores. Files are written after each; an interrupted case is resumed.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from secemb_lab.report.sequences_cost import DIMENSIONS, measure_catalogue_size
from secemb_lab.report.sequences_file import FILE
from secemb_lab.report.sequences_goals import Sequences
from secemb_lab.report.sequences_run import Case, measure_case
from secemb_sdk.models import registry
from secemb_tools import output
from secemb_tools.errors import OperationError

AMAZON_SIZE = "amazon-size"  # the case that trains nothing: sessions over all of Amazon
AMAZON_MODELS = ("sasrec", "caser")  # the models of the paper's table
PREFIX = 60  # rounds of a private run that does not go to the end: every sixth evaluates, 50 train


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceOptions:
    """What to measure."""

    data: Path  # a folder with the sets
    cases: Sequence[str] = ()  # none: all
    quick: bool = False  # made-up data, few rounds
    resume: bool = False  # keep finished cases, and resume the interrupted one
    processes: int = 1
    out: Path = Path("build/sequences.json")
    as_json: bool = False

    @property
    def runs(self) -> Path:
        """Return the folder of kept runs."""
        return self.out.with_name(f"{self.out.stem}-runs")


def run(options: SequenceOptions) -> int:
    """Measure, write figures, page and plots, print the goals; return 1 if one was missed."""
    cases = cases_of(options)
    wanted = _wanted(options, [*cases, AMAZON_SIZE])
    found = _kept(options, wanted)
    done = {one.name for one in found.runs} | ({AMAZON_SIZE} if found.sizes else set())
    FILE.write(options.out, found)
    for number, name in enumerate(wanted, start=1):
        if name not in done:
            begin = perf_counter()
            found = _with(found, options, name, cases, order=list(cases))
            found = replace(found, seconds=found.seconds + perf_counter() - begin)
            FILE.write(options.out, found)
        output.note(f"{number} of {len(wanted)}: {name}, {found.seconds / 60:.1f} min in all")
    return FILE.show(options.out, found, as_json=options.as_json)


def cases_of(options: SequenceOptions) -> dict[str, Case]:
    """Return the cases by name: of the sets that are there, with the models that have a name."""
    found = _quick_cases() if options.quick else _cases(options.data)
    return {one.name: one for one in found if one.model in registry.names() and _is_there(one)}


def _is_there(case: Case) -> bool:
    return case.path is None or case.path.is_dir()


def _cases(data: Path) -> list[Case]:
    return [
        Case(model="sasrec", path=data / "ml-1m"),
        *(
            Case(model=model, path=data / folder, private_rounds=PREFIX)
            for model, folder in (
                ("caser", "ml-1m"),
                ("sasrec", "amazon-video-games"),
                ("caser", "amazon-video-games"),
                ("lm", "shakespeare-roles"),
            )
        ),
    ]


def _quick_cases() -> list[Case]:
    settings = {"devices": 12, "cohort": 4, "rounds": 5, "evaluate_every": 3}
    return [
        Case(model="sasrec", settings=settings),
        *(Case(model=model, private_rounds=4, settings=settings) for model in ("caser", "lm")),
    ]


def _wanted(options: SequenceOptions, names: Sequence[str]) -> list[str]:
    """Return the names of the chosen cases, in the order of the report."""
    if unknown := set(options.cases) - set(names):
        raise OperationError(
            f"unknown case {min(unknown)!r}, or its set is not in {options.data}; choose from {', '.join(names)}"
        )
    return [name for name in names if not options.cases or name in options.cases]


def _kept(options: SequenceOptions, wanted: Sequence[str]) -> Sequences:
    """Return what an earlier report has of cases that are not measured now; the runs of those that are begin again."""
    earlier = FILE.read(options.out)
    if earlier is None or earlier.quick != options.quick:
        earlier = Sequences(quick=options.quick)
    if options.resume:
        return earlier
    for name in wanted:
        shutil.rmtree(options.runs / name, ignore_errors=True)
    sizes = [] if AMAZON_SIZE in wanted else earlier.sizes
    return replace(earlier, runs=[one for one in earlier.runs if one.name not in wanted], sizes=sizes)


def _with(
    found: Sequences, options: SequenceOptions, name: str, cases: dict[str, Case], *, order: list[str]
) -> Sequences:
    """Return the figures with those of one more case, in the order of the report."""
    if name == AMAZON_SIZE:
        known = [model for model in AMAZON_MODELS if model in registry.names()]
        dimensions = DIMENSIONS[:1] if options.quick else DIMENSIONS
        return replace(found, sizes=list(measure_catalogue_size(known, dimensions)))
    one = measure_case(cases[name], runs=options.runs, processes=options.processes)
    runs = sorted([*found.runs, one], key=lambda run: order.index(run.name) if run.name in order else len(order))
    return replace(found, runs=runs)
