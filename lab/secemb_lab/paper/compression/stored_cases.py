"""Finished trainings in a folder: each case is trained once, on all cores, and then read from its file."""

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from secemb_lab.paper.paper_table import Progress
from secemb_sdk.home.files import write_file

Figures = dict[str, float]
FOLDER = "cases"
_WORTH = 60.0  # seconds of training that justify processes, which take seconds to start


class Case(Protocol):
    """A training to be done. Its repr contains every setting, so a different repr is a different case."""

    @property
    def name(self) -> str:
        """Return its name, which is that of its file."""

    @property
    def weight(self) -> float:
        """Return its approximate duration in seconds on one idle core."""

    def measure(self) -> Figures:
        """Train and measure."""


def finish(cases: Sequence[Case], folder: Path, progress: Progress, *, processes: int | None = None) -> list[Figures]:
    """Return the figures of all cases; those without a file are trained first, with files written at once."""
    known = {case.name: read(case, folder) for case in cases}
    missing = [case for case in cases if known[case.name] is None]
    whole, done = sum(case.weight for case in missing), 0.0
    processes = processes or (_cores() if whole > _WORTH else 1)
    for number, (case, found) in enumerate(_measured(missing, processes), start=1):
        write(case, found, folder)
        known[case.name] = found
        done += case.weight
        progress(done / whole, f"{case.name} done, {number} of {len(missing)}")
    return [found for found in known.values() if found is not None]


def read(case: Case, folder: Path) -> Figures | None:
    """Return the figures of a finished case; None if it has no file, or one with different settings."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        found = json.loads(_file(case, folder).read_bytes())
        if found["case"] == repr(case):
            return {str(name): float(value) for name, value in found["figures"].items()}
    return None


def write(case: Case, found: Figures, folder: Path) -> None:
    """Store the figures of a case."""
    file = _file(case, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, (json.dumps({"case": repr(case), "figures": found}, indent=1) + "\n").encode())


def _file(case: Case, folder: Path) -> Path:
    return folder / FOLDER / f"{case.name}.json"


def _measured(cases: Sequence[Case], processes: int) -> Iterator[tuple[Case, Figures]]:
    """Yield each case with its figures as soon as it has ended."""
    if min(processes, len(cases)) <= 1:
        yield from ((case, case.measure()) for case in cases)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[Figures], Case] = {pool.submit(case.measure): case for case in cases}
        try:
            yield from ((waiting[one], one.result()) for one in as_completed(waiting))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error the remaining cases are useless


def _cores() -> int:
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
