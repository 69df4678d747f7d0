"""Metrics of one server, for Prometheus. They cannot identify a device.

Labels are words from our own source code; one with a digit in it, or a route that is not a template, is refused.
What is measured for each task has the label `task`, the first digits of its id.
Names follow the conventions of Prometheus: base units, `_total` for counters, `_timestamp_seconds` for times since
1970.
"""

import platform
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import cache
from importlib.metadata import version
from time import monotonic, perf_counter, thread_time
from typing import Literal

import prometheus_client as prometheus

from secemb_party.metric_families import MetricFamilies
from secemb_party.metric_labels import short_id, template, word
from secemb_party.safeguard_metrics import SafeguardMetrics
from secemb_shared.kernel import native_available

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
# These are a second series for each metric, which no rule uses.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]

Transport = Literal["direct", "relayed"]  # a device talks to both servers, or server 0 relays its messages
Expiring = Literal["own-certificate", "peer-certificate", "devices-certificate", "operator-certificate", "relay-key"]
# Phases of a task.
PHASES = (
    "starting",
    "idle",
    "waiting",
    "paused",
    "peer-paused",
    "open",
    "sealing",
    "sealed",
    "shared",
    "reconstructed",
    "finished",
)

# Phases in which no new version is due: deploy/prometheus/slo.yml excludes them.
RESTING = ("idle", "waiting", "paused", "peer-paused", "finished")

_PHASE_SECONDS = (0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}


class Metrics(MetricFamilies):
    """Metrics of one server, in its own registry, so that two servers can run in one process.

    `of_task` returns the metrics of one task, which share the registry and everything that is not about a task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._task = ""  # Prometheus treats an empty label like none
        # Labels are looked up once, because in the library finding a counter takes longer than counting.
        self._labelled = cache(lambda metric, *labels: metric.labels(*labels))
        self._expected: set[str] = set()  # slugs of the problems that exist
        self._refused: Tally[str] = Tally()  # refusals by slug
        self._aged, self._looked, self._resting = 0.0, monotonic(), True
        self.peer_heard_at: float | None = None
        prometheus.ProcessCollector(registry=self._registry)
        build = prometheus.Info(
            "secemb_build", "Version, Python version and kernel of this process", registry=self._registry
        )
        kernel = "native" if native_available() else "portable"
        build.info({"version": version("secemb"), "python": platform.python_version(), "kernel": kernel})
        self._register_requests()
        self._register_rounds()
        self._register_surroundings()
        self._register_privacy()
        self.safeguards = SafeguardMetrics(self._registry)
        self._of_tasks = [*self.safeguards.all, *self._measured_by_task]

    def of_task(self, task_id: bytes) -> "Metrics":
        """Return the metrics of one task; what they measure starts anew."""
        found = copy(self)
        found._task = short_id(task_id)
        found._refused, found._aged, found._looked, found._resting = Tally(), 0.0, monotonic(), True
        found.safeguards = self.safeguards.of_task(found._task)
        found._age.labels(found._task).set_function(found._measure_age)
        for metric in (found._rejected, found._conductor_failures, found._retry):
            metric.labels(found._task)  # an alert can detect the first one only if there was a zero before
        return found

    def forget_task(self) -> None:
        """Remove what was measured for this task: it no longer runs here."""
        for metric in self._of_tasks:
            metric.remove_by_labels({"task": self._task})
        self._labelled.cache_clear()

    def _register_requests(self) -> None:
        self._requests = self._histogram(
            "secemb_request_seconds", "Requests by route template, method and status", "route", "method", "status"
        )
        self._refusals = self._counter(
            "secemb_refusals", "Problem documents by slug, sent here or received from the peer", "problem", "by"
        )
        self._joins = self._task_counter("secemb_joins", "Join requests from devices", "outcome")
        self._retry = self._task_histogram(
            "secemb_retry_after_seconds", "Retry-After returned to join requests", buckets=_RETRY_SECONDS
        )
        self._sessions = self._task_counter("secemb_sessions", "Sessions that reached a phase", "phase", "transport")
        self._fates = self._task_counter(
            "secemb_round_sessions", "Sessions of sealed, aborted and discarded rounds, by outcome", "fate"
        )
        self._rejected = self._task_counter(
            "secemb_sessions_rejected", "Sessions rejected by the joint checks of both servers"
        )
        self._bytes = self._counter("secemb_bytes", "Bytes of request and response bodies", "direction")

    def _register_rounds(self) -> None:
        self._rounds = self._task_counter("secemb_rounds", "Finished rounds", "outcome")
        self._phases = self._task_histogram(
            "secemb_round_phase_seconds", "Time that rounds spent in each phase", "phase", buckets=_PHASE_SECONDS
        )
        self._draining = self._task_gauge("secemb_draining", "1 while this server is draining or drained, 0 otherwise")
        self._drained = self._task_gauge("secemb_drained", "1 once a drained server can be stopped, 0 otherwise")
        self._number = self._task_gauge("secemb_round_number", "Number of the latest round")
        self._phase = self._task_gauge("secemb_round_phase", "1 for the task's current phase, 0 for others", "phase")
        self._entered = self._task_gauge(
            "secemb_round_phase_start_timestamp_seconds", "Time at which the task entered its current phase"
        )
        self._deadline = self._task_gauge("secemb_round_upload_seconds", "Seconds from a round's opening to its end")
        self._version = self._task_gauge("secemb_model_version", "Published version of the model")
        self._published = self._task_gauge(
            "secemb_model_published_timestamp_seconds", "Time at which the current version was published"
        )
        self._age = self._task_gauge(
            "secemb_model_age_seconds",
            "Age of the current version since this process started, excluding time in which no new version was due",
        )
        self._quality = self._task_gauge(
            "secemb_quality", "Figures from the fleet's latest evaluations since this process started", "figure"
        )

    def _register_surroundings(self) -> None:
        self._kernel = self._histogram("secemb_kernel_seconds", "Processor time in the kernel", "operation")
        self._able = self._gauge("secemb_compute_ready", "1 while the engine can compute, 0 otherwise")
        self._able.set(1)
        self._replaced = self._counter("secemb_compute_replaced", "Workers of the engine that were lost and replaced")
        self._ledger = self._histogram("secemb_ledger_seconds", "Calls to the database", "operation", "outcome")
        self._peer_calls = self._histogram("secemb_peer_call_seconds", "Calls to the peer", "route", "outcome")
        self._heard = self._gauge(
            "secemb_peer_heard_timestamp_seconds", "Time of the last call or response from the peer"
        )
        self._strangers = self._counter(
            "secemb_peer_strangers", "Calls to the peer listener without the peer's bearer token"
        )
        self._expiry = self._gauge("secemb_expiry_timestamp_seconds", "Expiry time of each certificate or key", "of")
        self._skew = self._gauge(
            "secemb_clock_skew_seconds", "Seconds by which the peer's clock is ahead of this server's"
        )
        self._free = self._gauge("secemb_disk_free_bytes", "Free bytes on the disk with the server's data")
        self._reserve = self._gauge("secemb_disk_reserve_bytes", "Free bytes below which new sessions are refused")
        self._ledger_full = self._gauge("secemb_ledger_full", "1 while the database's disk is full, 0 otherwise")
        self._held = self._gauge("secemb_message_bytes", "Bytes of device messages held in memory")
        self._most_held = self._gauge(
            "secemb_message_limit_bytes",
            "Limit on bytes of device messages in memory; requests beyond it get status 429",
        )
        self._lag = self._gauge("secemb_event_loop_lag_seconds", "Largest event loop lag in the last minute")
        self._conductor_failures = self._task_counter("secemb_conductor_failures", "Unexpected errors in the conductor")
        self._conducts = self._gauge("secemb_conductor", "1 if this process conducts the rounds (server 0)")
        self._largest_lag = self._gauge(
            "secemb_event_loop_lag_largest_seconds", "Largest event loop lag since this process started"
        )

    def _register_privacy(self) -> None:
        self._epsilon = self._task_gauge("secemb_privacy_epsilon", "ε spent so far, by kind of round", "kind")
        self._epsilon_known = self._task_gauge(
            "secemb_privacy_epsilon_known",
            "ε spent against an attacker who knows who took part, without amplification by sampling",
            "kind",
        )
        self._rounds_left = self._task_gauge("secemb_privacy_rounds_left", "Rounds left in the privacy budget", "kind")
        self._rounds_ahead = self._task_gauge("secemb_privacy_rounds_ahead", "Rounds left in the task", "kind")

    # Requests.

    def request(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is its template."""
        labels = template(route), method if method in _METHODS else "other", str(status)
        self._labelled(self._requests, *labels).observe(seconds)

    def expect_problems(self, slugs: Iterable[str]) -> None:
        """Show these problems from the start: an alert can detect the first one only if there was a zero before."""
        for slug in slugs:
            self._expected.add(slug)
            for by in ("self", "peer"):
                self._refusals.labels(word(slug), by)

    def refused(self, slug: str) -> None:
        """Count a problem document sent."""
        self._refusals.labels(word(slug), "self").inc()
        self._refused[slug] += 1

    def refused_by_peer(self, slug: str) -> None:
        """Count a problem document received from the peer; an unexpected one counts as `unknown`."""
        known = slug if slug in self._expected else "unknown"  # otherwise the peer could create labels without limit
        self._refusals.labels(known, "peer").inc()
        self._refused[f"peer: {known}"] += 1

    def refusals(self) -> dict[str, int]:
        """Return how often each problem was sent and, as `peer: …`, received."""
        return dict(self._refused)

    def join(self, outcome: str, *, retry_after: float | None = None) -> None:
        """Count a join request by its outcome, and the time after which the device should retry."""
        self._labelled(self._joins, self._task, word(outcome)).inc()
        if retry_after is not None:
            self._labelled(self._retry, self._task).observe(retry_after)

    def session(self, phase: str, count: int = 1, *, transport: Transport = "direct") -> None:
        """Count sessions that reached a phase, `keys` or `update`, by their transport."""
        self._labelled(self._sessions, self._task, word(phase), transport).inc(count)

    def moved(self, *, received: int, sent: int) -> None:
        """Count the bytes of bodies."""
        self._labelled(self._bytes, "in").inc(received)
        self._labelled(self._bytes, "out").inc(sent)

    # Rounds and models.

    def task_phase(self, phase: str, *, number: int | None, since: float) -> None:
        """Record the task's current phase, one of `PHASES`, its round (None if there was none), and when it began."""
        if phase not in PHASES:
            raise ValueError(f"{phase!r} is not a phase of a task; add it to PHASES")
        self._number.labels(self._task).set(number or 0)
        self._measure_age()
        self._resting = phase in RESTING
        for one in PHASES:
            self._labelled(self._phase, self._task, one).set(one == phase)
        self._entered.labels(self._task).set(since)

    def draining(self, drains: bool) -> None:
        """Record whether the operator drains this server."""
        self._draining.labels(self._task).set(drains)

    def drained(self, done: bool) -> None:
        """Record whether this server was drained and may be stopped."""
        self._drained.labels(self._task).set(done)

    def round_deadline(self, seconds: float) -> None:
        """Record how long a round of this task may take until its seal, which alerts use."""
        self._deadline.labels(self._task).set(seconds)

    def round_phase(self, phase: str, seconds: float) -> None:
        """Record how long a round was in a phase."""
        self._phases.labels(self._task, word(phase)).observe(seconds)

    def round_sessions(self, fate: str, count: int) -> None:
        """Count a round's sessions that were `counted`, `left-out` of its sum, or `aborted` or `discarded` with it.

        Discarded sessions were counted before as part of the sum.
        """
        self._fates.labels(self._task, word(fate)).inc(count)

    def sessions_rejected(self, count: int) -> None:
        """Count sessions that were complete on both servers but failed their checks."""
        self._rejected.labels(self._task).inc(count)

    def expect_rounds(self, outcomes: Iterable[str]) -> None:
        """Show these outcomes from the start: an alert can detect the first one only if there was a zero before."""
        for outcome in outcomes:
            self._rounds.labels(self._task, word(outcome))

    def round_ended(self, outcome: str) -> None:
        """Count a round that was `published`, `aborted` or `discarded`."""
        self._rounds.labels(self._task, word(outcome)).inc()

    def model_version(self, version: int, published_at: float) -> None:
        """Record the version that devices see, and when it was published."""
        self._version.labels(self._task).set(version)
        self._published.labels(self._task).set(published_at)
        self._aged, self._looked = 0.0, monotonic()

    def _measure_age(self) -> float:
        """Return the seconds since the last version during which the task was active."""
        now = monotonic()
        self._aged += 0.0 if self._resting else now - self._looked
        self._looked = now
        return self._aged

    def quality(self, figures: Mapping[str, float]) -> None:
        """Record the fleet's figures; figures that are no longer known are removed."""
        self._quality.remove_by_labels({"task": self._task})
        for name, value in figures.items():
            self._quality.labels(self._task, word(name)).set(value)

    def privacy(self, kind: str, *, epsilon: float, epsilon_known: float, remaining: int, ahead: int) -> None:
        """Record the state of the budget for a kind of round."""
        self._epsilon.labels(self._task, word(kind)).set(epsilon)
        self._epsilon_known.labels(self._task, word(kind)).set(epsilon_known)
        self._rounds_left.labels(self._task, word(kind)).set(remaining)
        self._rounds_ahead.labels(self._task, word(kind)).set(ahead)

    # A server's dependencies.

    @contextmanager
    def kernel(self, operation: str) -> Iterator[None]:
        """Measure the processor time of an operation of the kernel in the thread that runs it."""
        start = thread_time()
        try:
            yield
        finally:
            self._labelled(self._kernel, word(operation)).observe(thread_time() - start)

    def kernel_spent(self, operation: str, seconds: float) -> None:
        """Record the processor time that workers on other machines spent on an operation of the kernel."""
        self._labelled(self._kernel, word(operation)).observe(seconds)

    def watch_compute(self, able: Callable[[], bool]) -> None:
        """Set the function that returns whether the workers on other machines can compute."""
        self._able.set_function(able)

    def compute_replaced(self, count: int) -> None:
        """Count workers that were lost and replaced."""
        self._replaced.inc(count)

    @contextmanager
    def ledger(self, operation: str) -> Iterator[None]:
        """Measure a `read` or `write` of the database; one that raises counts as `failed`."""
        start, outcome = perf_counter(), "failed"
        try:
            yield
            outcome = "ok"
        finally:
            self._labelled(self._ledger, operation, outcome).observe(perf_counter() - start)

    def peer_call(self, route: str, outcome: str, seconds: float) -> None:
        """Record a call to the peer: `announce`, `seal`, `share`, `publish`; `ok`, `refused`, `unreachable`."""
        self._peer_calls.labels(word(route), word(outcome)).observe(seconds)

    def heard_peer(self, now: float) -> None:
        """Record that the peer has called or answered."""
        self.peer_heard_at = now
        self._heard.set(now)

    def conductor_failed(self) -> None:
        """Count a step of the conductor that failed unexpectedly."""
        self._conductor_failures.labels(self._task).inc()

    def conducts(self, does: bool) -> None:
        """Show whether this process conducts the rounds; of several replicas, one does."""
        self._conducts.set(does)

    def stranger(self) -> None:
        """Count a call on the peer channel with the peer's certificate but without its bearer token."""
        self._strangers.inc()

    def watch_expiry(self, of: Expiring, expires: Callable[[], float]) -> None:
        """Set the function that returns when something expires; it is called whenever the metrics are read."""
        self._expiry.labels(of).set_function(expires)

    def watch_memory(self, held: Callable[[], int], most: int) -> None:
        """Set the function that returns the bytes of messages in memory, and their limit."""
        self._held.set_function(held)
        self._most_held.set(most)

    def clock_skew(self, seconds: float) -> None:
        """Record by how much the other server's clock is ahead of this one's."""
        self._skew.set(seconds)

    def watch_space(self, free: Callable[[], int], reserve: int, ledger_full: Callable[[], bool]) -> None:
        """Set the functions for the free disk space and a full ledger, and the space reserved for running sessions."""
        self._free.set_function(free)
        self._reserve.set(reserve)
        self._ledger_full.set_function(ledger_full)

    def loop_lag(self, *, lately: float, largest: float) -> None:
        """Record how late the event loop woke up at most, in the last minute and since the start."""
        self._lag.set(lately)
        self._largest_lag.set(largest)

    # Reading them.

    def figures(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield every sample: its name, its labels and its value."""
        for metric in self._registry.collect():
            yield from ((sample.name, sample.labels, sample.value) for sample in metric.samples)

    def render(self) -> bytes:
        """Return everything as Prometheus text."""
        return prometheus.generate_latest(self._registry)
