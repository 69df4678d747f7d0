"""Measurements and reports on SecEmb. Not part of the wheel: run `python -m secemb_lab`, or the targets of `make`."""

import os
from pathlib import Path


def child_environment() -> dict[str, str]:
    """Return the environment of a child process that imports this package, which is not installed."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
