"""What this process has measured since its start, and its current rates."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from secemb_party.metrics import Metrics

WINDOW = 30.0  # seconds that a rate is taken over
_SHORTEST = 0.5


class Figures:
    """All samples of one moment."""

    def __init__(self, metrics: Metrics) -> None:
        self._samples = list(metrics.figures())

    @property
    def started_at(self) -> float | None:
        """Return when this process was started, if the system tells."""
        return self.one("process_start_time_seconds")

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all samples of a name that have these labels."""
        return sum(value for _, value in self._matching(name, labels))

    def one(self, name: str) -> float | None:
        """Return a sample that stands alone, or None if there is none."""
        return next((value for _, value in self._matching(name, {})), None)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the sums over a name for each value of one of its labels, of the samples that have these others."""
        found: dict[str, float] = {}
        for sample, value in self._matching(name, labels):
            found[sample[label]] = found.get(sample[label], 0.0) + value
        return dict(sorted(found.items()))

    def _matching(self, name: str, wanted: Mapping[str, str]) -> list[tuple[Mapping[str, str], float]]:
        return [
            (labels, value)
            for sample, labels, value in self._samples
            if sample == name and wanted.items() <= dict(labels).items()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRates:
    """How much happens per second, and over how many seconds that was measured."""

    requests: float
    updates: float
    received: float  # bytes
    sent: float
    seconds: float
    since_start: bool


class Throughput:
    """Remembers the counts of the last few looks: rates are differences."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._started = clock, clock()
        self._looks: deque[tuple[float, tuple[float, ...]]] = deque()

    def measure(self, figures: Figures) -> TrafficRates:
        """Return the rates since a look some seconds ago, or since the start at the first."""
        now, counted = self._clock(), _counted(figures)
        while self._looks and now - self._looks[0][0] > WINDOW:
            self._looks.popleft()
        recent = bool(self._looks) and now - self._looks[0][0] >= _SHORTEST
        then, before = self._looks[0] if recent else (self._started, (0.0,) * len(counted))
        self._looks.append((now, counted))
        seconds = max(_SHORTEST, now - then)
        rates = [(new - old) / seconds for new, old in zip(counted, before, strict=True)]
        return TrafficRates(
            requests=rates[0],
            updates=rates[1],
            received=rates[2],
            sent=rates[3],
            seconds=seconds,
            since_start=not recent,
        )


def _counted(figures: Figures) -> tuple[float, ...]:
    return (
        figures.total("secemb_request_seconds_count"),
        figures.total("secemb_sessions_total", phase="update"),
        figures.total("secemb_bytes_total", direction="in"),
        figures.total("secemb_bytes_total", direction="out"),
    )
