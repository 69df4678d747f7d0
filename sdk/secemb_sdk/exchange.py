"""Requests to the servers: retries with the same bytes, deadlines and budgets, and errors from problem documents."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

from secemb_sdk.context import Context
from secemb_sdk.errors import (
    CertificateError,
    ConflictError,
    CopyError,
    DeviceError,
    EndedError,
    EnrolmentError,
    ExchangeError,
    GoneError,
    OutdatedKeyError,
    PinError,
    RefusedError,
    RoundFullError,
    SucceededError,
    TokenExpiredError,
    TokenRevokedError,
    UnavailableError,
)
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.receipts import EndedRounds, Receipt, Traffic
from secemb_sdk.steps import Answer, Lost, Request, Result, Steps, pause, send, work

PREFIX = "urn:secemb:problem:"
ENDED = "the task has ended; no more rounds will open"
LONGEST_WAIT = 86_400.0  # seconds that a server can make a device wait
_FIRST_SERVER_FAULT = 500
_LATER = "server {server} cannot handle this request right now"
_NOT_PASSED_ON = "server 0 did not pass this device's message on to server 1 unchanged"
_GONE = "the round, ticket or model version is no longer valid at server {server}"

Entry = tuple[type[DeviceError], str]  # the error and its message

BY_SLUG: Mapping[str, Entry] = {
    "unauthorized": (EnrolmentError, "server {server} does not recognise the token; ask its operator for a new one"),
    "token-expired": (
        TokenExpiredError,
        "this device's token has expired at server {server}; get a new one from the app's backend or the "
        "operator, and open the same home with it",
    ),
    "token-revoked": (TokenRevokedError, "server {server} has revoked this device's token; ask its operator why"),
    "token-suspended": (
        UnavailableError,
        "server {server} has suspended this device; ask its operator why",
    ),
    "task-unknown": (
        PinError,
        "server {server} does not serve this task; check the task id and the addresses, or ask its operator whether"
        " it was restored from a backup older than the task",
    ),
    "task-ended": (EndedError, ENDED),
    "task-succeeded": (SucceededError, "the task has a successor"),
    "successor-unknown": (UnavailableError, "server {server} has not switched to the task's successor yet"),
    "task-stopped": (UnavailableError, "server {server} does not run this task now; its operator can start it again"),
    "session-conflict": (ConflictError, "server {server} already has a different message for this session"),
    "round-closed": (GoneError, _GONE),
    "round-full": (RoundFullError, "the round is full at server {server}"),
    "round-unknown": (GoneError, _GONE),
    "session-unknown": (GoneError, _GONE),
    "ticket-refused": (GoneError, _GONE),
    "model-unknown": (GoneError, _GONE),
    "catalogue-unavailable": (
        CopyError,
        "server {server} does not have the task's catalogue; tell its operator, or pass titles=False",
    ),
    "not-found": (UnavailableError, "server {server} has no such endpoint; check which server is 0 and which is 1"),
    "relay-key-outdated": (OutdatedKeyError, "the message was encrypted to a key that server 1 no longer uses"),
    "relay-box": (UnavailableError, _NOT_PASSED_ON),
    "relay-altered": (UnavailableError, _NOT_PASSED_ON),
    "proof-refused": (UnavailableError, "server {server} rejected the MAC of this session's upload"),
    "relay-round": (UnavailableError, "the two servers announce different rounds"),
    "peer-refused": (UnavailableError, _LATER),
    "busy": (UnavailableError, _LATER),
    "unavailable": (UnavailableError, _LATER),
    "internal": (UnavailableError, _LATER),
    "body-slow": (UnavailableError, "server {server} timed out while waiting for the message"),
}
# The misconduct that a refusal proves. Different bytes prove it too in a session, but not in a join.
NOTICED: Mapping[str, Misconduct] = {
    "relay-box": Misconduct.NOT_PASSED_ON,
    "relay-altered": Misconduct.NOT_PASSED_ON,
    "relay-round": Misconduct.ROUND,
    "proof-refused": Misconduct.MAC,
}
# For proxies and load balancers, which send no problem documents.
BY_STATUS: Mapping[int, Entry] = {
    401: BY_SLUG["unauthorized"],
    404: (UnavailableError, "no SecEmb server found at the address of server {server}; check the address"),
    408: BY_SLUG["body-slow"],
    409: BY_SLUG["session-conflict"],
    410: BY_SLUG["round-closed"],
    425: (UnavailableError, _LATER),
    429: BY_SLUG["busy"],
}
_REDIRECTED: Entry = (UnavailableError, "server {server} redirects; use its final address")
_REFUSED: Entry = (RefusedError, "server {server} rejected the message; update this app or the server")


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in an answer; an empty one if there is none, or if it contains a duplicate name."""
    try:
        found = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a name occurs twice")
    return found


def error_for(server: int, answer: Answer) -> DeviceError:
    """Return the error for an answer whose status is neither 2xx nor 304."""
    document = _document(answer)
    kind, words = _entry(answer, document)
    # Server 0 can claim this about any message, so the text says which server is accused, and by which.
    other = server == 0 and document.get("refused_by") == 1
    said = words.format(server="1 (as server 0 says)" if other else server)
    if not issubclass(kind, ExchangeError):
        return kind(said)
    slug = _slug(document)
    # This device sends well-formed messages, so server 1 received something different.
    noticed = Misconduct.NOT_PASSED_ON if other and slug.startswith("message-") else NOTICED.get(slug)
    return kind(said, seconds=retry_after(answer), noticed=noticed)


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of a Retry-After header; a date is ignored, because this device's clock may be wrong."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else None


def _entry(answer: Answer, document: Mapping[str, object]) -> Entry:
    entry = BY_SLUG.get(_slug(document)) or BY_STATUS.get(answer.status)
    if entry is not None:
        return entry
    if answer.status >= _FIRST_SERVER_FAULT:
        return UnavailableError, _LATER
    return _REDIRECTED if 300 <= answer.status < 400 else _REFUSED


def _document(answer: Answer) -> Mapping[str, object]:
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    return json_object(answer.body)


def _slug(document: Mapping[str, object]) -> str:
    name = document.get("type")
    return name.removeprefix(PREFIX) if isinstance(name, str) else ""


_FIRST_PAUSE = 0.5  # seconds; doubled after each failure
_BUSY_PAUSE = 30.0  # the maximum, for a server that responds that it is unavailable
AWAY_PAUSE = 900.0  # the maximum, for a server that does not respond
AWAY_SECONDS = 5.0  # seconds of failed attempts before the call returns, if no session is pending
_POLICY_SECONDS = 60.0  # until the policy is checked again after a refusal
_UNTRUSTED_SECONDS = 60.0  # allows an operator time to renew a certificate
_TIMED_OUT = "the call timed out"
_ANSWERED = (200, 202, 206, 304)

Accept = Callable[[Request, Answer], str | None]  # the reason why an answer fails its check


def anything(_request: Request, _answer: Answer) -> None:
    """Accept every answer."""


class Exchange:
    """One call of a device: the requests of its steps, their time limit, and the bytes transferred."""

    def __init__(self, context: Context, *, most_bytes: int | None = None) -> None:
        self.context, self._most_bytes = context, most_bytes
        self._ends = context.clock() + context.policy.seconds
        self.traffic = Traffic()
        self._ended_rounds: EndedRounds | None = None
        self.tossed: int | None = None  # the round for which this device has drawn its participation
        self.begun = False  # a session is pending, so waiting for a server until the call ends is worthwhile
        self._silent_since: float | None = None

    def hear_of_rounds(self, found: object) -> None:
        """Remember how rounds ended, from an answer that is the same for every device."""
        self._ended_rounds = EndedRounds.read(found) or self._ended_rounds

    def settle(self) -> Steps[tuple[Receipt, ...]]:
        """Record the outcome of earlier rounds; return the receipts that this updates.

        Only at the end of a call: between two requests, the time it takes would reveal to a server who was in a round.
        """
        rounds = self._ended_rounds
        return () if rounds is None else tuple((yield from work(lambda: self.context.vault.settle(rounds))))

    def end_within(self, seconds: float) -> None:
        """Shorten the remaining time."""
        self._ends = min(self._ends, self.context.clock() + seconds)

    def wait_until(self, time: float) -> Steps[None]:
        """Wait until the clock shows `time`; raise at once if the call would time out before."""
        seconds = time - self.context.clock()
        if seconds > 0 and time >= self._ends:
            raise UnavailableError(_TIMED_OUT, seconds=max(seconds, _FIRST_PAUSE))
        if seconds > 0:
            yield from pause(seconds)

    def note(self, misconduct: Misconduct) -> Steps[None]:
        """Record a server's misconduct."""
        yield from work(lambda: self.context.note(misconduct))

    def noting(self, steps: Steps[Result]) -> Steps[Result]:
        """Run the steps of a whole call; record misconduct, and remember which servers do not respond."""
        try:
            result = yield from steps
        except DeviceError as error:
            if error.noticed is not None:
                yield from self.note(error.noticed)
            yield from work(self.context.vault.keep_failures)
            raise
        yield from work(self.context.vault.keep_failures)
        return result

    def ask(self, *requests: Request, accept: Accept = anything) -> Steps[list[Answer]]:
        """Send requests concurrently, retrying each until it is answered; raise the error of the first refusal."""
        answers: dict[int, Answer] = {}
        while True:
            waiting = [index for index in range(len(requests)) if index not in answers]
            found = yield from self._send([requests[index] for index in waiting])
            troubles: list[UnavailableError] = []
            failed = set()
            for index, one in zip(waiting, found, strict=True):
                trouble = _trouble(requests[index], one, accept)
                if isinstance(trouble, UnavailableError) and not isinstance(trouble, CertificateError):
                    troubles.append(trouble)
                    failed.add(requests[index].server)
                    if trouble.noticed is not None:
                        yield from self.note(trouble.noticed)
                elif trouble is not None:
                    raise trouble
                elif isinstance(one, Answer):
                    answers[index] = one
            failures = self._count_failures({one.server for one in requests}, failed)
            if not troubles:
                self._silent_since = None
                return [answers[index] for index in range(len(requests))]
            yield from self._back_off(troubles, failures)

    def _send(self, requests: list[Request]) -> Steps[list[Answer | Lost]]:
        if not self.context.policy.allowed():
            raise UnavailableError("the policy does not allow requests right now", seconds=_POLICY_SECONDS)
        left = self._ends - self.context.clock()
        if left <= 0:
            raise UnavailableError(_TIMED_OUT, seconds=_FIRST_PAUSE)
        self.check_room(sum(len(one.body) for one in requests))
        try:
            found = yield from send(*(replace(one, seconds=min(one.seconds, left)) for one in requests))
        except DeviceError:
            # A server without the pinned key receives nothing. How much the other one has received by then is unknown.
            if len(requests) > 1:
                self._count(requests, [Lost("")] * len(requests))
            raise
        self._count(requests, found)
        return found

    def check_room(self, count: int) -> None:
        """Raise unless the policy allows this many more bytes."""
        moved = sum(self.traffic.sent) + sum(self.traffic.received) + count
        if self._most_bytes is not None and moved > self._most_bytes:
            raise RefusedError("a retry would transfer more bytes than the policy allows")

    def _count(self, requests: list[Request], found: list[Answer | Lost]) -> None:
        for request, one in zip(requests, found, strict=True):
            self.traffic.count(request, one)

    def _count_failures(self, asked: set[int], failed: set[int]) -> int:
        """Count consecutive failures by server, across calls; return the highest count of those that just failed."""
        counts = self.context.vault.failures
        counts.update({one: counts.get(one, 0) + 1 if one in failed else 0 for one in asked})
        return max((counts[one] for one in failed), default=0)

    def _back_off(self, troubles: list[UnavailableError], failures: int) -> Steps[None]:
        """Wait as long as the servers ask, plus an exponential delay with jitter: devices must not retry together.

        The time keeps growing from call to call, so that a fleet does not burden a server after a long outage. If it
        exceeds what remains of this call, the caller is told when to call again.
        """
        asked = max(error.seconds or 0.0 for error in troubles)
        longest = AWAY_PAUSE if any(error.seconds is None for error in troubles) else _BUSY_PAUSE
        ceiling = min(longest, _FIRST_PAUSE * 2.0 ** min(failures - 1, 20))
        wait = asked + ceiling * (1 + int.from_bytes(self.context.random_bytes(4), "little") / 2**32) / 2
        if self.context.clock() + wait >= self._until(away=longest == AWAY_PAUSE):
            raise UnavailableError(str(troubles[0]), seconds=wait)
        yield from pause(wait, str(troubles[0]))

    def _until(self, *, away: bool) -> float:
        """Return the time at which this call stops retrying."""
        if not away:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.context.clock()
        if self.begun or self._silent_since is None:
            return self._ends
        return min(self._ends, self._silent_since + AWAY_SECONDS)


def server_time(answer: Answer) -> float | None:
    """Return the time of the server's clock, in seconds since 1970, from its answer."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


def _trouble(request: Request, found: Answer | Lost, accept: Accept) -> DeviceError | None:
    if isinstance(found, Lost) and found.untrusted:
        return CertificateError(f"server {request.server} {found.reason}", seconds=_UNTRUSTED_SECONDS)
    if isinstance(found, Lost):
        return UnavailableError(f"server {request.server} did not respond ({found.reason})")
    if found.status not in _ANSWERED:
        return error_for(request.server, found)
    wrong = accept(request, found)
    return None if wrong is None else UnavailableError(wrong, noticed=Misconduct.RECEIPT)
