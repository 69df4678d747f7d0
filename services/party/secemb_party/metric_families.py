"""The families of metrics in one registry; those about a task have the label `task` first."""

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# 1 s and 2.5 s are objectives in deploy/prometheus/slo.yml, so they must be bounds of buckets.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

Kind = TypeVar("Kind", Counter, Gauge, Histogram)


class MetricFamilies:
    """A registry, and functions that create families in it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._measured_by_task: list[Counter | Gauge | Histogram] = []

    def _task_counter(self, name: str, help: str, *labels: str) -> Counter:
        return self._by_task(self._counter(name, help, "task", *labels))

    def _task_gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return self._by_task(self._gauge(name, help, "task", *labels))

    def _task_histogram(self, name: str, help: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return self._by_task(self._histogram(name, help, "task", *labels, buckets=buckets))

    def _by_task(self, metric: Kind) -> Kind:
        self._measured_by_task.append(metric)
        return metric

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(name, help, labels, registry=self._registry)

    def _histogram(self, name: str, help: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return Histogram(name, help, labels, buckets=buckets, registry=self._registry)
