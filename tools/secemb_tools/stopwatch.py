"""How long things take on a shared machine: the fastest of many calls, taken in turns."""

from collections.abc import Callable, Mapping
from time import perf_counter

Work = Callable[[], object]

TURN_SECONDS = 0.002


def fastest(candidates: Mapping[str, Work], seconds: float, turns: int = 2) -> dict[str, float]:
    """Return each candidate's fastest call over at least `turns` turns and about `seconds` in all."""
    best = dict.fromkeys(candidates, float("inf"))
    end, done = perf_counter() + seconds, 0
    while done < turns or perf_counter() < end:
        for name, work in candidates.items():
            best[name] = min(best[name], _turn(work))
        done += 1
    return best


def _turn(work: Work) -> float:
    """Call `work` for one turn, at least once, and return the seconds of the fastest call."""
    best, start = float("inf"), perf_counter()
    end = start + TURN_SECONDS
    while start < end:
        work()
        now = perf_counter()
        best, start = min(best, now - start), now
    return best
