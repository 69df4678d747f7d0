"""The one table from a server's problem document (RFC 9457) to an error of the SDK.

Types are `urn:secemb:problem:<slug>`; docs/errors.md explains the slugs. A server's own words are not repeated: they
come from outside.
"""

import json
from collections.abc import Mapping

from secemb_sdk.detections import Misconduct
from secemb_sdk.effects import Answer
from secemb_sdk.errors import (
    ConflictError,
    DeviceError,
    EnrolmentError,
    ExchangeError,
    OutdatedKeyError,
    OverError,
    PinError,
    RefusedError,
    UnavailableError,
)

PREFIX = "urn:secemb:problem:"
_LONGEST_WAIT = 86_400.0
_FIRST_SERVER_FAULT = 500
_LATER = "server {server} cannot do this now"
_NOT_PASSED_ON = "server 0 does not pass on to server 1 what it was sent"
_GONE = "the round, the ticket or the model version is gone at server {server}"

Entry = tuple[type[DeviceError], str]  # the error, and what it says

BY_SLUG: Mapping[str, Entry] = {
    "unauthorized": (EnrolmentError, "server {server} does not know the token; ask its operator for a new one"),
    "task-unknown": (PinError, "server {server} does not serve this task; ask the operator for task and servers"),
    "session-conflict": (ConflictError, "server {server} holds other bytes of this session"),
    "round-closed": (OverError, _GONE),
    "round-unknown": (OverError, _GONE),
    "session-unknown": (OverError, _GONE),
    "ticket-refused": (OverError, _GONE),
    "model-unknown": (OverError, _GONE),
    "not-found": (UnavailableError, "server {server} has no such service; check which server is 0 and which is 1"),
    "relay-key-outdated": (OutdatedKeyError, "server 1 does not use the key any more that this was sealed to"),
    "relay-box": (UnavailableError, _NOT_PASSED_ON),
    "relay-altered": (UnavailableError, _NOT_PASSED_ON),
    "proof-refused": (UnavailableError, "server {server} does not take the upload for one with this session's keys"),
    "relay-round": (UnavailableError, "the two servers announce different rounds"),
    "peer-refused": (UnavailableError, _LATER),
    "busy": (UnavailableError, _LATER),
    "unavailable": (UnavailableError, _LATER),
    "internal": (UnavailableError, _LATER),
    "body-slow": (UnavailableError, "server {server} waited for the message too long"),
}
# What a refusal tells about a server. Other bytes in a session do as well, but not where one joins.
NOTICED: Mapping[str, Misconduct] = {
    "relay-box": Misconduct.NOT_PASSED_ON,
    "relay-altered": Misconduct.NOT_PASSED_ON,
    "relay-round": Misconduct.ROUND,
    "proof-refused": Misconduct.PROOF,
}
# For what stands in between and speaks no problem documents: proxies, load balancers.
BY_STATUS: Mapping[int, Entry] = {
    401: BY_SLUG["unauthorized"],
    404: (UnavailableError, "there is no SecEmb server behind the address of server {server}; check the address"),
    408: BY_SLUG["body-slow"],
    409: BY_SLUG["session-conflict"],
    410: BY_SLUG["round-closed"],
    425: (UnavailableError, _LATER),
    429: BY_SLUG["busy"],
}
_REDIRECTED: Entry = (UnavailableError, "server {server} answers with a redirect; give its final address")
_REFUSED: Entry = (RefusedError, "server {server} refuses the message; update this app or the server")


def error_for(server: int, answer: Answer) -> DeviceError:
    """Return the error that an answer of another status than 2xx or 304 stands for."""
    document = _document(answer)
    kind, words = _entry(answer, document)
    # Server 0 may say this of anything: the device hears whom it names, and from whom it has that.
    other = server == 0 and document.get("refused_by") == 1
    said = words.format(server="1 (as server 0 says)" if other else server)
    if not issubclass(kind, ExchangeError):
        return kind(said)
    slug = _slug(document)
    # What this device has made has the right form; server 1 got something else.
    noticed = Misconduct.NOT_PASSED_ON if other and slug.startswith("message-") else NOTICED.get(slug)
    return kind(said, seconds=retry_after(answer), noticed=noticed)


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of a Retry-After header; a date in it is not looked at, because this clock may be wrong."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdigit() else None


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
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _slug(document: Mapping[str, object]) -> str:
    name = document.get("type")
    return name.removeprefix(PREFIX) if isinstance(name, str) else ""
