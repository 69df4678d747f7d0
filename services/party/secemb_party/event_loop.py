"""How late the event loop wakes up: the first sign of a machine that is too small, or of work in the wrong place."""

import asyncio
from collections import deque
from time import perf_counter

from secemb_party.metrics import Metrics


async def watch_event_loop(metrics: Metrics, *, every: float = 0.1, remembered: int = 600) -> None:
    """Measure the event loop's lag until cancelled; the last measurements are remembered, by default a minute's."""
    recent: deque[float] = deque(maxlen=remembered)
    largest = 0.0
    while True:
        start = perf_counter()
        await asyncio.sleep(every)
        recent.append(max(0.0, perf_counter() - start - every))
        largest = max(largest, recent[-1])
        metrics.loop_lag(lately=max(recent), largest=largest)
