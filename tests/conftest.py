"""What holds for every test: no test fails for being slow, and Hypothesis shows how to repeat a failure."""

import gc
import os
from collections import Counter

import pytest
from hypothesis import settings

# Before any test imports torch: its threads wait for each other at full speed, and every worker has as many as cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("secemb", deadline=None, print_blob=True)
settings.load_profile("secemb")


def pytest_collection_finish() -> None:
    """Keep what is there for the whole run, thousands of tests and all modules, out of every garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time of a long run went: the seconds of one worker in each folder, set-up included."""
    reports = [one for found in terminalreporter.stats.values() for one in found if hasattr(one, "duration")]
    seconds: Counter[str] = Counter()
    for one in reports:
        seconds["/".join(one.nodeid.split("/")[:2])] += one.duration
    if len(seconds) > 1:
        found = ", ".join(f"{folder} {spent:.0f}" for folder, spent in seconds.most_common())
        terminalreporter.write_line(f"seconds of one worker: {found}")
