"""What one app counts and measures, for Prometheus. None of it can name a device.

Labels are words from our own source code; one with a digit in it, or a route that is not a template, is refused.
"""

import asyncio
import re
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter, thread_time
from typing import Any, Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

Transport = Literal["direct", "relayed"]  # a device talks to both servers, or server 0 passes messages on

_REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
_PHASE_SECONDS = (0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0)
_KERNEL_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
_WORD = re.compile(r"[a-z][a-z_-]{0,39}")
_TEMPLATE = re.compile(r"unmatched|/|(/([a-z][a-z0-9_.-]{0,30}|\{[a-z_:]+\}))+")
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}


class Metrics:
    """What one app counts and measures, in its own registry, so that two apps can live in one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        # Labels are looked up once: the library takes longer to find a counter than to count.
        self._labelled: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))
        ProcessCollector(registry=registry)
        self._requests = Histogram(
            "secemb_request_seconds",
            "Requests by route template, method and status",
            ["route", "method", "status"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._expected: set[str] = set()  # slugs of the problems that exist
        self._refused: Tally[str] = Tally()  # refusals by slug
        self._refusals = Counter(
            "secemb_refusals",
            "Problem documents by slug, sent here or received from the peer",
            ["problem", "by"],
            registry=registry,
        )
        self._sessions = Counter(
            "secemb_sessions", "Sessions that reached a phase, each once", ["phase", "transport"], registry=registry
        )
        self._rounds = Counter("secemb_rounds", "Rounds that ended", ["outcome"], registry=registry)
        self._phases = Histogram(
            "secemb_round_phase_seconds", "Time a round spent", ["phase"], buckets=_PHASE_SECONDS, registry=registry
        )
        self._kernel = Histogram(
            "secemb_kernel_seconds", "Time in the kernel", ["operation"], buckets=_KERNEL_SECONDS, registry=registry
        )
        self._bytes = Counter("secemb_bytes", "Bytes of bodies", ["direction"], registry=registry)
        self._peer_calls = Counter("secemb_peer_calls", "Calls to the peer", ["route", "outcome"], registry=registry)
        self._heard = Gauge(
            "secemb_peer_heard_seconds", "When the peer last called or answered, since 1970", registry=registry
        )
        self._queue = Gauge(
            "secemb_queue_places_taken", "Places taken in the queue of the worker threads", registry=registry
        )
        self._lag = Gauge(
            "secemb_event_loop_lag_seconds",
            "How late the event loop woke up in the last minute, at most",
            registry=registry,
        )
        self._largest_lag = Gauge(
            "secemb_event_loop_lag_largest_seconds", "How late it woke up since the start, at most", registry=registry
        )
        self._strangers = Counter(
            "secemb_peer_strangers", "Calls on the peer line without the peer's bearer token", registry=registry
        )
        self._epsilon = Gauge(
            "secemb_privacy_epsilon", "ε that rounds of a kind have cost here", ["kind"], registry=registry
        )
        self._epsilon_known = Gauge(
            "secemb_privacy_epsilon_known",
            "The same against an attacker who knows who took part: without amplification by sampling",
            ["kind"],
            registry=registry,
        )
        self._rounds_left = Gauge(
            "secemb_privacy_rounds_left", "Rounds of a kind that the budget still allows", ["kind"], registry=registry
        )
        self._rounds_ahead = Gauge(
            "secemb_privacy_rounds_ahead", "Rounds of a kind that the task still has", ["kind"], registry=registry
        )
        self._version = Gauge("secemb_model_version", "Version of the model that devices see", registry=registry)
        self._quality = Gauge(
            "secemb_quality",
            "The fleet's figures from the newest evaluations together, since this process started",
            ["figure"],
            registry=registry,
        )

    def request(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is its template."""
        labels = _template(route), method if method in _METHODS else "other", str(status)
        self._labelled(self._requests, *labels).observe(seconds)

    def expect_problems(self, slugs: Iterable[str]) -> None:
        """Show these problems from the start: an alert notices the first one only after a zero."""
        for slug in slugs:
            self._expected.add(slug)
            for by in ("self", "peer"):
                self._refusals.labels(_word(slug), by)

    def refused(self, slug: str) -> None:
        """Count a problem document sent."""
        self._refusals.labels(_word(slug), "self").inc()
        self._refused[slug] += 1

    def refused_by_peer(self, slug: str) -> None:
        """Count a problem document received from the peer; an unexpected one counts as `unknown`."""
        known = slug if slug in self._expected else "unknown"  # else the peer could invent labels without limit
        self._refusals.labels(known, "peer").inc()
        self._refused[f"peer: {known}"] += 1

    def refusals(self) -> dict[str, int]:
        """Return how often each problem was sent and, as `peer: …`, received."""
        return dict(self._refused)

    def session(self, phase: str, count: int = 1, *, transport: Transport = "direct") -> None:
        """Count sessions that reached a phase, `keys` or `update`, by their transport."""
        self._labelled(self._sessions, _word(phase), transport).inc(count)

    def round_ended(self, outcome: str) -> None:
        """Count a round that was `published` or `aborted`."""
        self._rounds.labels(_word(outcome)).inc()

    def privacy(self, kind: str, *, epsilon: float, epsilon_known: float, remaining: int, ahead: int) -> None:
        """Record where the budget of a kind of round stands."""
        self._epsilon.labels(_word(kind)).set(epsilon)
        self._epsilon_known.labels(_word(kind)).set(epsilon_known)
        self._rounds_left.labels(_word(kind)).set(remaining)
        self._rounds_ahead.labels(_word(kind)).set(ahead)

    def round_phase(self, phase: str, seconds: float) -> None:
        """Record how long a round was in a phase."""
        self._phases.labels(_word(phase)).observe(seconds)

    @contextmanager
    def kernel(self, operation: str) -> Iterator[None]:
        """Measure the processor time of an operation of the kernel in the thread that runs it."""
        start = thread_time()
        try:
            yield
        finally:
            self._labelled(self._kernel, _word(operation)).observe(thread_time() - start)

    def moved(self, *, received: int, sent: int) -> None:
        """Count the bytes of bodies."""
        self._labelled(self._bytes, "in").inc(received)
        self._labelled(self._bytes, "out").inc(sent)

    def peer_call(self, route: str, outcome: str) -> None:
        """Count a call to the peer: `announce`, `seal`, `share`, `publish`; `ok`, `refused`, `unreachable`."""
        self._peer_calls.labels(_word(route), _word(outcome)).inc()

    def heard_peer(self, now: float) -> None:
        """Record that the peer has called or answered."""
        self._heard.set(now)

    def watch_queue(self, taken: Callable[[], int]) -> None:
        """Set the function that returns the number of places taken."""
        self._queue.set_function(taken)

    def stranger(self) -> None:
        """Count a call on the peer line with the peer's certificate but without its bearer token."""
        self._strangers.inc()

    def loop_lag(self, *, lately: float, largest: float) -> None:
        """Record how late the event loop woke up at most, in the last minute and since the start."""
        self._lag.set(lately)
        self._largest_lag.set(largest)

    def model_version(self, version: int) -> None:
        """Record the version that devices see."""
        self._version.set(version)

    def quality(self, figures: Mapping[str, float]) -> None:
        """Record the fleet's figures; one that is no longer known is taken away."""
        self._quality.clear()
        for name, value in figures.items():
            self._quality.labels(_word(name)).set(value)

    def figures(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield every sample: its name, its labels and its value."""
        for metric in self._registry.collect():
            yield from ((sample.name, sample.labels, sample.value) for sample in metric.samples)

    def render(self) -> bytes:
        """Return everything as Prometheus text."""
        return generate_latest(self._registry)


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


@cache  # labels are our own words: few, and always the same
def _word(label: str) -> str:
    if not _WORD.fullmatch(label):
        raise ValueError("a label is a short word in lower case: ids and values do not belong in metrics")
    return label


@cache
def _template(route: str) -> str:
    if not _TEMPLATE.fullmatch(route):
        raise ValueError("a route is counted by its template, not by the path of a request")
    return route
