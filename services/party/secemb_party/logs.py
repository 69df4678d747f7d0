"""Log lines that cannot identify a device.

They contain only plain values under harmless names. Anything else is withheld, and an exception is described by its
type and location, without its message.
"""

import logging
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]

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
_FOREIGN_LEVELS = {"uvicorn.error": logging.INFO}  # other libraries log requests below WARNING: httpx logs every URL
REMIND_SECONDS = 300.0
# Used instead of structlog.contextvars, which would merge many variables at each request.
_REQUEST: ContextVar[str | None] = ContextVar("request", default=None)
_PROCESS: list[int] = []  # the number of this replica, if there are several on this machine
_TASK: ContextVar[str | None] = ContextVar("task", default=None)
_MOST_CAUSES = 8  # failures of one outage that are logged individually


@cache
def get_logger() -> FilteringBoundLogger:
    """Return the logger of the services. It withholds secrets whether or not logs are configured."""
    processors: list[Processor] = [
        structlog.stdlib.filter_by_level,
        name_request,
        withhold_secrets,
        *_COMMON,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    logger = structlog.wrap_logger(
        _LINES,
        processors=processors,
        # Not the logger for the standard library: its `exception` passes the exception on unchanged.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)


def debugging() -> bool:
    """Return whether debug lines are enabled: building one costs more than this check."""
    return _LINES.isEnabledFor(logging.DEBUG)


def new_request_id() -> str:
    """Return an id for a request or an internal step. It is not secret, so it needs no system call."""
    return f"{random.getrandbits(64):016x}"


class request_lines:  # noqa: N801 - used like a function; `contextmanager` would make a generator for each request
    """Adds a request id to every line that is logged inside, and to calls to the other server."""

    __slots__ = ("_earlier", "_id")

    def __init__(self, request_id: str) -> None:
        self._id = request_id

    def __enter__(self) -> None:
        self._earlier = _REQUEST.set(self._id)

    def __exit__(self, *_: object) -> None:
        _REQUEST.reset(self._earlier)


class task_lines:  # noqa: N801 - as above
    """Adds the short id of a task to every line that is logged inside."""

    __slots__ = ("_earlier", "_task")

    def __init__(self, task: str) -> None:
        self._task = task

    def __enter__(self) -> None:
        self._earlier = _TASK.set(self._task)

    def __exit__(self, *_: object) -> None:
        _TASK.reset(self._earlier)


def current_request() -> str | None:
    """Return the request id of lines that are logged here."""
    return _REQUEST.get()


def configure_logs(level: Level, format: Format, stream: TextIO | None = None) -> None:
    """Write our lines and those of libraries to `stream` (stderr), each as a JSON object or a line of text."""
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


def name_replica(number: int) -> None:
    """Add the number of this replica to every line from now on."""
    _PROCESS[:] = [number]


def name_request(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the request id and the task to a line, and the number of the replica that writes it."""
    for name, told in (("request", _REQUEST.get()), ("task", _TASK.get())):
        if told is not None:
            event.setdefault(name, told)
    if _PROCESS:
        event.setdefault("replica", _PROCESS[-1])
    return event


def withhold_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Withhold values whose name suggests a secret and values that are not plain; log only their names."""
    withheld = [name for name, value in event.items() if name != "exc_info" and not _may_be_logged(name, value)]
    for name in withheld:
        del event[name]
    if withheld:
        event["withheld"] = " ".join(sorted(withheld))
    return event


def describe_exceptions(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and location: its message may quote a request."""
    info = event.pop("exc_info", None)
    event.pop("stack_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        event["error"] = type(error).__name__
        event["where"] = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return event


def keep_first_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Shorten a library's message to its first line: asyncio puts the message of a lost exception in the second."""
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
    access = logging.getLogger("uvicorn.access")  # its lines contain paths, and paths contain ids
    access.handlers, access.propagate = [], False
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True


class Outage:
    """Failures of one kind: logs when and why they start, their number from time to time, and when they end."""

    def __init__(
        self, begins: str, ends: str, *, level: Level = "warning", steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._begins, self._ends, self._level, self._steady = begins, ends, level, steady
        self._causes: set[str] = set()
        self._failures, self._since, self._told = 0, 0.0, 0.0

    def failed(self, cause: str, error: BaseException | None = None) -> None:
        """Count a failure; log it if its cause is new, or if nothing was logged for some minutes."""
        now = self._steady()
        if not self._failures:
            self._since = now
        self._failures += 1
        new = cause not in self._causes and len(self._causes) < _MOST_CAUSES
        if new or now - self._told >= REMIND_SECONDS:
            self._causes.add(cause)
            self._told = now
            facts = {"reason": cause, "failures": self._failures, "seconds": round(now - self._since, 1)}
            getattr(get_logger(), self._level)(self._begins, exc_info=error, **facts)

    def worked(self) -> None:
        """Log that the failures are over, if there were any."""
        if not self._failures:
            return
        seconds = round(self._steady() - self._since, 1)
        get_logger().warning(self._ends, failures=self._failures, seconds=seconds)
        self._causes.clear()
        self._failures = 0
