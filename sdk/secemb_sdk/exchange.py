"""Asking servers until they answer: the same bytes again after a pause, within a deadline and the owner's policy."""

from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime

from secemb_sdk.detections import Misconduct
from secemb_sdk.effects import Answer, Lost, Request, Result, Steps, pause, send, work
from secemb_sdk.errors import DeviceError, RefusedError, UnavailableError
from secemb_sdk.parts import Parts
from secemb_sdk.problems import error_for
from secemb_sdk.receipts import Traffic

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds
_POLICY_SECONDS = 60.0  # until a policy that says no may say yes
_OVER = "the time for this call is over"
_ANSWERED = (200, 202, 206, 304)

Accept = Callable[[Request, Answer], str | None]  # why an answer does not show what it must, in words
Judge = Callable[[Request, Answer | Lost], UnavailableError | None]  # what stands against an answer, to ask again


def anything(_request: Request, _answer: Answer) -> None:
    """Accept every answer."""


class Exchange:
    """One run of a device's steps: how long it may take, and what it has moved."""

    def __init__(self, parts: Parts, *, most_bytes: int | None = None) -> None:
        self._parts, self._most_bytes = parts, most_bytes
        self._ends = parts.clock() + parts.policy.seconds
        self.traffic = Traffic()

    def end_within(self, seconds: float) -> None:
        """End earlier than the policy says."""
        self._ends = min(self._ends, self._parts.clock() + seconds)

    def wait_until(self, time: float) -> Steps[None]:
        """Let time pass until the clock shows `time`; where that is after the end, end now."""
        seconds = time - self._parts.clock()
        if seconds > 0 and time >= self._ends:
            raise UnavailableError(_OVER, seconds=max(seconds, _FIRST_PAUSE))
        if seconds > 0:
            yield from pause(seconds)

    def note(self, misconduct: Misconduct) -> Steps[None]:
        """Count what a server does against the protocol."""
        yield from work(lambda: self._parts.note(misconduct))

    def noting(self, steps: Steps[Result]) -> Steps[Result]:
        """Carry on with steps; count what they end with if a server is to blame."""
        try:
            return (yield from steps)
        except DeviceError as error:
            if error.noticed is not None:
                yield from self.note(error.noticed)
            raise

    def ask(self, *requests: Request, accept: Accept = anything) -> Steps[list[Answer]]:
        """Send requests at the same time, each until it is answered; raise what the first refusal stands for."""

        def judge(request: Request, found: Answer | Lost) -> UnavailableError | None:
            error = _trouble(request, found, accept)
            if error is None or isinstance(error, UnavailableError):
                return error
            raise error

        return (yield from self._ask(requests, judge))

    def ask_any(self, *requests: Request) -> Steps[list[Answer]]:
        """Send requests at the same time, each until its answer is final, be it a refusal."""

        def judge(request: Request, found: Answer | Lost) -> UnavailableError | None:
            error = _trouble(request, found, anything)
            return error if isinstance(error, UnavailableError) else None

        return (yield from self._ask(requests, judge))

    def _ask(self, requests: tuple[Request, ...], judge: Judge) -> Steps[list[Answer]]:
        answers: dict[int, Answer] = {}
        tries = 0
        while True:
            waiting = [index for index in range(len(requests)) if index not in answers]
            found = yield from self._send([requests[index] for index in waiting])
            troubles: list[UnavailableError] = []
            for index, one in zip(waiting, found, strict=True):
                trouble = judge(requests[index], one)
                if trouble is not None:
                    troubles.append(trouble)
                    if trouble.noticed is not None:
                        yield from self.note(trouble.noticed)
                elif isinstance(one, Answer):
                    answers[index] = one
            if not troubles:
                return [answers[index] for index in range(len(requests))]
            yield from self._back_off(troubles, tries)
            tries += 1

    def _send(self, requests: list[Request]) -> Steps[list[Answer | Lost]]:
        if not self._parts.policy.allowed():
            raise UnavailableError("the policy does not allow it now", seconds=_POLICY_SECONDS)
        left = self._ends - self._parts.clock()
        if left <= 0:
            raise UnavailableError(_OVER, seconds=_FIRST_PAUSE)
        moved = sum(self.traffic.sent) + sum(self.traffic.received) + sum(len(one.body) for one in requests)
        if self._most_bytes is not None and moved > self._most_bytes:
            raise RefusedError("sending this again would move more bytes than the policy allows")
        try:
            found = yield from send(*(replace(one, seconds=min(one.seconds, left)) for one in requests))
        except DeviceError:
            # A server that is not the pinned one gets no byte. What the other one has got by then nobody says.
            if len(requests) > 1:
                self._count(requests, [Lost("")] * len(requests))
            raise
        self._count(requests, found)
        return found

    def _count(self, requests: list[Request], found: list[Answer | Lost]) -> None:
        for request, one in zip(requests, found, strict=True):
            self.traffic.count(request, one)

    def _back_off(self, troubles: list[UnavailableError], tries: int) -> Steps[None]:
        """Wait as long as the servers ask for, and a random part of an ever longer time, so that crowds dissolve."""
        asked = max(error.seconds or 0.0 for error in troubles)
        ceiling = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries, 10))
        wait = asked + ceiling * int.from_bytes(self._parts.random_bytes(4), "little") / 2**32
        if self._parts.clock() + wait >= self._ends:
            raise UnavailableError(str(troubles[0]), seconds=max(asked, _FIRST_PAUSE))
        yield from pause(wait)


def server_time(answer: Answer) -> float | None:
    """Return the server's clock as its answer shows it, in seconds since 1970."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


def _trouble(request: Request, found: Answer | Lost, accept: Accept) -> DeviceError | None:
    if isinstance(found, Lost):
        return UnavailableError(f"server {request.server} does not answer ({found.reason})")
    if found.status not in _ANSWERED:
        return error_for(request.server, found)
    wrong = accept(request, found)
    return None if wrong is None else UnavailableError(wrong, noticed=Misconduct.RECEIPT)
