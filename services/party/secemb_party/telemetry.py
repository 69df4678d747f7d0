"""Metrics and logs, neither of which can name a device.

Labels are words from our own source code; one with a digit in it, or a route that is not a template, is refused. Log
lines carry plain values under harmless names; anything else is withheld, and an exception is described by its type and
place, without its words.
"""

import asyncio
import logging
import re
import sys
import traceback
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter, thread_time
from typing import Any, Literal, TextIO, cast

import structlog
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

CONTENT_TYPE = CONTENT_TYPE_LATEST

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]
Transport = Literal["direct", "relayed"]  # a device talks to both servers, or server 0 passes messages on

_REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
_PHASE_SECONDS = (0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0)
_KERNEL_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
_WORD = re.compile(r"[a-z][a-z_-]{0,39}")
_TEMPLATE = re.compile(r"unmatched|/|(/([a-z][a-z0-9_.-]{0,30}|\{[a-z_:]+\}))+")
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

_LINES = logging.getLogger("secemb")
_LONGEST_TEXT = 200
# A name is split at "_": peer_token and item_ids are caught too.
# fmt: off
_SECRET_NAMES = {
    "authorization", "bearer", "body", "bodies", "cookie", "gradient", "gradients", "header", "headers", "item",
    "items", "key", "keys", "noise", "password", "payload", "query", "rating", "ratings", "secret", "secrets",
    "seed", "seeds", "session", "share", "shares", "ticket", "tickets", "token", "tokens", "words",
}
# fmt: on
_FOREIGN_LEVELS = {"uvicorn.error": logging.INFO}  # others speak of requests below WARNING: httpx logs every address


class Metrics:
    """What one app counts and measures, in a registry of its own so that two apps can live in one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        # What every session counts is found by its labels once: the library looks longer than it counts.
        self._labelled: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))
        ProcessCollector(registry=registry)
        self._requests = Histogram(
            "secemb_request_seconds",
            "Requests by route template, method and status",
            ["route", "method", "status"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._expected: set[str] = set()  # problems that there are
        self._refused: Tally[str] = Tally()  # refusals, where a round asks for them
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
        self._queue = Gauge("secemb_queue_places_taken", "Places taken in the workers' queue", registry=registry)
        self._lag = Gauge(
            "secemb_event_loop_lag_seconds",
            "How late the event loop woke up in the last minute, at most",
            registry=registry,
        )
        self._largest_lag = Gauge(
            "secemb_event_loop_lag_largest_seconds", "How late it woke up since the start, at most", registry=registry
        )
        self._strangers = Counter(
            "secemb_peer_strangers", "Calls on the peer line without the peer's bearer", registry=registry
        )
        self._epsilon = Gauge(
            "secemb_privacy_epsilon", "ε that rounds of a kind have cost here", ["kind"], registry=registry
        )
        self._epsilon_known = Gauge(
            "secemb_privacy_epsilon_known",
            "The same against whoever knows who took part: without amplification by sampling",
            ["kind"],
            registry=registry,
        )
        self._rounds_left = Gauge(
            "secemb_privacy_rounds_left", "Rounds of a kind that may still come", ["kind"], registry=registry
        )
        self._rounds_ahead = Gauge(
            "secemb_privacy_rounds_ahead", "Rounds of a kind that the task still has", ["kind"], registry=registry
        )
        self._version = Gauge("secemb_model_version", "Version of the model that devices see", registry=registry)

    def request(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is its template."""
        labels = _template(route), method if method in _METHODS else "other", str(status)
        self._labelled(self._requests, *labels).observe(seconds)

    def expect_problems(self, slugs: Iterable[str]) -> None:
        """Show these problems from the start: an alert sees the first one only if there was a zero before it."""
        for slug in slugs:
            self._expected.add(slug)
            for by in ("self", "peer"):
                self._refusals.labels(_word(slug), by)

    def refused(self, slug: str) -> None:
        """Count a problem document sent."""
        self._refusals.labels(_word(slug), "self").inc()
        self._refused[slug] += 1

    def refused_by_peer(self, slug: str) -> None:
        """Count a problem document received from the other server; one that nobody expects counts as `unknown`."""
        known = slug if slug in self._expected else "unknown"  # else the other server could invent words without end
        self._refusals.labels(known, "peer").inc()
        self._refused[f"peer: {known}"] += 1

    def refusals(self) -> dict[str, int]:
        """Return how often each problem was sent, and as `peer: …` received."""
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
        """Record that the other server has called, or has answered."""
        self._heard.set(now)

    def watch_queue(self, taken: Callable[[], int]) -> None:
        """Ask for the number of places taken whenever metrics are read."""
        self._queue.set_function(taken)

    def stranger(self) -> None:
        """Count somebody on the peer line who has the peer's certificate and not its bearer."""
        self._strangers.inc()

    def loop_lag(self, *, lately: float, largest: float) -> None:
        """Record how late the event loop woke up at most, in the last minute and since the start."""
        self._lag.set(lately)
        self._largest_lag.set(largest)

    def model_version(self, version: int) -> None:
        """Record the version that devices see."""
        self._version.set(version)

    def figures(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield every sample: its name, its labels and its value."""
        for metric in self._registry.collect():
            yield from ((sample.name, sample.labels, sample.value) for sample in metric.samples)

    def render(self) -> bytes:
        """Return everything as Prometheus text."""
        return generate_latest(self._registry)


async def watch_event_loop(metrics: Metrics, *, every: float = 0.1, remembered: int = 600) -> None:
    """Measure the event loop's lag until cancelled; so many measurements are remembered, a minute's."""
    recent: deque[float] = deque(maxlen=remembered)
    largest = 0.0
    while True:
        start = perf_counter()
        await asyncio.sleep(every)
        recent.append(max(0.0, perf_counter() - start - every))
        largest = max(largest, recent[-1])
        metrics.loop_lag(lately=max(recent), largest=largest)


@cache  # labels are words of our own, few and always the same
def _word(label: str) -> str:
    if not _WORD.fullmatch(label):
        raise ValueError("a label is a short word in small letters: ids and values do not belong into metrics")
    return label


@cache
def _template(route: str) -> str:
    if not _TEMPLATE.fullmatch(route):
        raise ValueError("a route is counted by its template, not by the path of a request")
    return route


@cache
def get_logger() -> FilteringBoundLogger:
    """Return the logger of the services. It keeps secrets whether or not logs have been configured."""
    processors: list[Processor] = [
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        withhold_secrets,
        *_COMMON,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    logger = structlog.wrap_logger(
        _LINES,
        processors=processors,
        # Not the one for the standard library: its `exception` hands the exception on as it is.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)


def debugging() -> bool:
    """Tell whether lines that help to find faults are wanted: to make one costs more than to ask."""
    return _LINES.isEnabledFor(logging.DEBUG)


def configure_logs(level: Level, format: Format, stream: TextIO | None = None) -> None:
    """Send our lines and those of libraries to `stream` (stderr), one JSON object or one line of text each."""
    text = structlog.dev.ConsoleRenderer(colors=False)
    renderer: Processor = structlog.processors.JSONRenderer() if format == "json" else text
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        foreign_pre_chain=[keep_first_line, *_COMMON],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    logging.getLogger().handlers[:] = [handler]
    _set_levels(level)


def withhold_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Withhold what has a secret's name or is more than a plain value; name what was withheld."""
    withheld = [name for name, value in event.items() if name != "exc_info" and not _may_be_logged(name, value)]
    for name in withheld:
        del event[name]
    if withheld:
        event["withheld"] = " ".join(sorted(withheld))
    return event


def describe_exceptions(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and place: its words may quote a request."""
    info = event.pop("exc_info", None)
    event.pop("stack_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        event["error"] = type(error).__name__
        event["where"] = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return event


def keep_first_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Shorten a library's message to its first line: asyncio shows a lost exception's words in the second."""
    event["event"] = str(event["event"]).partition("\n")[0][:_LONGEST_TEXT]
    return event


_COMMON: list[Processor] = [
    describe_exceptions,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _may_be_logged(name: str, value: object) -> bool:
    if _SECRET_NAMES & set(name.lower().split("_")):
        return False
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)


def _set_levels(level: Level) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    _LINES.setLevel(level.upper())
    for name, minimum in _FOREIGN_LEVELS.items():
        logging.getLogger(name).setLevel(minimum)
    access = logging.getLogger("uvicorn.access")  # its lines hold paths, and paths hold ids
    access.handlers, access.propagate = [], False
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
