"""Measurements of this process since its start, and its current rates."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from secemb_party.metrics import Metrics

WINDOW = 30.0  # seconds over which a rate is measured
_SHORTEST = 0.5


class Figures:
    """All samples at one time."""

    def __init__(self, metrics: Metrics) -> None:
        self._samples = list(metrics.figures())

    @property
    def started_at(self) -> float | None:
        """Return when this process was started, if the system provides this."""
        return self.one("process_start_time_seconds")

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all samples with this name and these labels."""
        return sum(value for _, value in self._matching(name, labels))

    def one(self, name: str) -> float | None:
        """Return the only sample of a name, or None."""
        return next((value for _, value in self._matching(name, {})), None)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the sums for each value of one label, over the samples with this name and these other labels."""
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
    """Rates per second, and the number of seconds over which they were measured."""

    requests: float
    updates: float
    received: float  # bytes
    sent: float
    seconds: float
    since_start: bool


class Throughput:
    """The counts of the last few calls: rates are differences."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._started = clock, clock()
        self._looks: deque[tuple[float, tuple[float, ...]]] = deque()

    def measure(self, figures: Figures) -> TrafficRates:
        """Return the rates since a call some seconds ago, or since the start if this is the first."""
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
