"""What the protocol wants done. A device's steps are generators that yield these; a driver does them and sends back
the result. The steps themselves touch no socket, no disk and no clock, so that one text serves async and blocking
programs, tests with a faulty network, and other people's HTTP stacks.

    Send    requests, at the same time      → an answer or `Lost` for each, in the same order
    Pause   for some seconds                → None
    Work    computing or writing to disk    → what the function returns; a driver may run it in a thread
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to server 0 or 1."""

    server: int
    method: str
    path: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    most: int = 1 << 20  # the longest body that is read of an answer, in bytes
    seconds: float = 60.0  # the longest that all of it may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came, or not all of it; whether the request arrived is not known."""

    reason: str
    sent: int | None = None  # bytes of the request's body that were handed over; None: all of them may have been
    received: int = 0  # bytes of the answer's body that had come


@dataclass(frozen=True, slots=True)
class Send:
    """Send all of these, at the same time."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so many seconds pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call this; it takes long enough to be kept away from an event loop."""

    function: Callable[[], Any] = field(repr=False)


Effect: TypeAlias = Send | Pause | Work
Steps: TypeAlias = Generator[Effect, Any, Result]


def send(*requests: Request) -> Steps[list[Answer | Lost]]:
    """Send requests and return what came back."""
    answers: list[Answer | Lost] = yield Send(requests)
    return answers


def pause(seconds: float) -> Steps[None]:
    """Let time pass."""
    yield Pause(seconds)


def work(function: Callable[[], Result]) -> Steps[Result]:
    """Return what the function returns."""
    result: Result = yield Work(function)
    return result
