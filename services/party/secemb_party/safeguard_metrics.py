"""Metrics of the safeguards of the model: the sizes of sums, the optimiser's guard, the trusted panel."""

from collections.abc import Mapping
from copy import copy

from prometheus_client import CollectorRegistry, Gauge

from secemb_party.metric_labels import word


class SafeguardMetrics:
    """Gauges for the newest training round and the panel's newest evaluation; only server 0 sets them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._task = ""
        self._norm = Gauge(
            "secemb_sum_norm",
            "Norm of the mean update of the newest training round, by part of the model",
            ["task", "part"],
            registry=registry,
        )
        self._fullness = Gauge(
            "secemb_sum_fullness_ratio",
            "Largest element of the sum of the newest training round, as a fraction of the largest possible",
            ["task", "part"],
            registry=registry,
        )
        self._limited = Gauge(
            "secemb_guard_limited_ratio",
            "Fraction of rows that the guard limited in the newest training round",
            ["task"],
            registry=registry,
        )
        self._panel = Gauge(
            "secemb_panel_quality",
            "Figures from the trusted panel's newest evaluation",
            ["task", "figure"],
            registry=registry,
        )
        self._worse = Gauge(
            "secemb_panel_worse",
            "Number of the panel's newest evaluations that were worse than its best by more than the margin",
            ["task"],
            registry=registry,
        )
        self.all = [self._norm, self._fullness, self._limited, self._panel, self._worse]

    def of_task(self, task: str) -> "SafeguardMetrics":
        """Return the gauges of one task; on server 1 they stay at 0."""
        found = copy(self)
        found._task = task
        for gauge in (found._limited, found._worse):
            gauge.labels(task)
        return found

    def sum_size(self, part: str, *, norm: float, fullness: float) -> None:
        """Record how large a part of a training round's sum is; if its fullness exceeds 1, the round is discarded."""
        self._norm.labels(self._task, word(part)).set(norm)
        self._fullness.labels(self._task, word(part)).set(fullness)

    def limited(self, ratio: float) -> None:
        """Record the fraction of rows that the optimiser's guard has limited in a training round."""
        self._limited.labels(self._task).set(ratio)

    def panel_quality(self, figures: Mapping[str, float]) -> None:
        """Record the figures of the trusted panel's newest evaluation."""
        self._panel.remove_by_labels({"task": self._task})
        for name, value in figures.items():
            self._panel.labels(self._task, word(name)).set(value)

    def panel_worse(self, times: int) -> None:
        """Record how many consecutive newest evaluations of the panel were worse than its best."""
        self._worse.labels(self._task).set(times)
