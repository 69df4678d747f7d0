"""The noise of a share, on one core: seconds for ten million numbers, with the kernel and by the definition."""

from functools import partial
from typing import Any

from rich.console import Console

from secemb_shared.dpf import _native as native
from secemb_shared.dpf._portable import Portable
from secemb_shared.privacy import draw
from secemb_shared.privacy.gaussian import default_judge, judge
from secemb_tools.stopwatch import Work, fastest

NUMBERS = 10**7
_PIECE = 1 << 16  # as a server adds noise: one piece of a share after the other
_VARIANCE = 1 << 32  # a power of four, where the fewest proposals are accepted: any other σ is a little faster


def measure(seconds: float) -> list[dict[str, Any]]:
    """Time the drawing of a piece, and say how long as many as a large model needs would take."""
    best = fastest(_works(), seconds)
    return [{"backend": name, "seconds": took * NUMBERS / _PIECE} for name, took in best.items()]


def show(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print a line for each backend."""
    for row in figures:
        console.print(f"noise, {row['backend']}: {row['seconds']:.2f} s for 10^7 numbers on one core")


def _works() -> dict[str, Work]:
    one = partial(draw, _PIECE, variance=_VARIANCE)
    works: dict[str, Work] = {"portable": partial(one, judge=judge, backend=Portable())}
    if native.native_available():
        works = {"kernel": partial(one, judge=default_judge(), backend=native.Native()), **works}
    return works
