"""Problem documents (RFC 9457): one table that maps error classes to what the caller learns.

A type is `urn:secemb:problem:<slug>`; slugs and statuses are part of the interface: docs/reference/errors.md.
A document never repeats what the caller has sent. An error's message is included only if the table allows it and no
part of it looks like an id.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from secemb_party import errors
from secemb_party.compute import ComputeUnavailableError
from secemb_party.logs import get_logger
from secemb_party.succession.errors import NoSuccessorError, SuccessionRefusedError, TaskSucceededError
from secemb_party.tenancy import errors as task_errors
from secemb_shared import errors as shared

PREFIX = "urn:secemb:problem:"
MEDIA_TYPE = "application/problem+json"
SLUG = "secemb.problem"  # key in the scope of a refused request: what to log about it

_RETRY_SECONDS = 2
_LONGEST_DETAIL = 240
_LOOKS_LIKE_AN_ID = re.compile(r"[0-9A-Fa-f]{16,}|(?=[\w+/-]*[0-9])[\w+/-]{24,}")

Refused = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One kind of refusal."""

    slug: str
    status: int
    title: str
    speaks: bool = True  # whether the error's message is meant for the caller
    retry_after: int | None = None  # seconds; an error may override it

    @property
    def type(self) -> str:
        """Return the stable identifier."""
        return PREFIX + self.slug

    def seconds(self, error: Exception | None) -> int | None:
        """Return after how many seconds to retry; an error may override the table."""
        found: int | None = getattr(error, "retry_after", self.retry_after)
        return found


def _silent(slug: str, status: int, title: str, retry_after: int | None = None) -> Problem:
    return Problem(slug=slug, status=status, title=title, speaks=False, retry_after=retry_after)


def _spoken(slug: str, status: int, title: str) -> Problem:
    return Problem(slug=slug, status=status, title=title)


INTERNAL = _silent("internal", 500, "The server failed to handle the request")
UNAVAILABLE = _silent("unavailable", 503, "The server cannot do this now; try again later", _RETRY_SECONDS)
NOT_FOUND = _silent("not-found", 404, "Not found")
METHOD_NOT_ALLOWED = _silent("method-not-allowed", 405, "Method not allowed")
REQUEST_INVALID = _silent("request-invalid", 400, "The request is not valid")
UNAUTHORIZED = _spoken("unauthorized", 401, "A valid token is required")
FORBIDDEN = _spoken("forbidden", 403, "The token does not allow this request")
MEDIA_TYPE_REFUSED = _spoken("media-type", 415, "The body has the wrong media type")
BODY_SLOW = _spoken("body-slow", 408, "The body did not arrive in time")
MODEL_UNKNOWN = _spoken("model-unknown", 404, "No such model version")
BUSY = _spoken("busy", 429, "The server is busy; try again later")

# An error without an entry uses that of its nearest ancestor. Errors that only the server can cause are internal.
TABLE: Mapping[type[shared.SecEmbError], Problem] = {
    shared.SecEmbError: INTERNAL,
    shared.RingError: _silent("number-refused", 400, "A number is not finite or does not fit the task's ring"),
    shared.LayoutError: INTERNAL,  # a device's message for another layout has another binding, and is refused earlier
    shared.SuccessionError: INTERNAL,  # devices do not send links
    shared.RowMapError: INTERNAL,
    shared.CatalogueError: INTERNAL,  # no route parses a catalogue
    shared.SpecError: _spoken("specification-invalid", 400, "The specification is not valid"),
    shared.SessionError: _spoken("session-conflict", 409, "The session was used with different bytes or out of order"),
    shared.PathSpentError: INTERNAL,
    shared.MacError: _spoken(
        "proof-refused", 403, "The upload is not from the device that generated the session's keys"
    ),
    shared.RowTagError: INTERNAL,
    shared.MessageError: _spoken("message-invalid", 400, "The message is not valid for this round"),
    shared.LengthError: _spoken("message-length", 400, "The message is too short or too long"),
    shared.VersionError: _spoken("message-version", 400, "Unsupported protocol version"),
    shared.KindError: _spoken("message-kind", 400, "The message is of the wrong kind"),
    shared.BindingError: _spoken("message-binding", 400, "The message is for another task, round or session"),
    shared.EncodingError: _spoken("message-encoding", 400, "The message is not canonical"),
    shared.BoxError: _spoken("relay-box", 400, "Server 1 cannot decrypt the box"),
    shared.AlteredError: _spoken("relay-altered", 400, "The message was altered on the way to server 1"),
    shared.OtherRoundError: _spoken("relay-round", 409, "The box was encrypted for another round"),
    shared.RelayKeyError: INTERNAL,
    errors.SettingsError: INTERNAL,
    errors.OperatorTokenError: INTERNAL,  # only commands can change operator tokens
    task_errors.UnknownTaskError: _spoken("task-unknown", 404, "This server does not serve the task"),
    task_errors.TaskEndedError: _spoken("task-ended", 410, "The task has ended"),
    task_errors.TaskStoppedError: replace(
        _spoken("task-stopped", 503, "This server does not run the task now"), retry_after=300
    ),
    task_errors.TaskChoiceError: _spoken("task-choice", 409, "Several tasks run here; name one"),
    task_errors.TaskControlError: _spoken("task-control", 409, "The task cannot be started, stopped or archived now"),
    errors.UnknownRoundError: _spoken("round-unknown", 404, "This server does not know the round"),
    errors.UnknownSessionError: _spoken("session-unknown", 404, "This server does not know the session"),
    errors.RoundClosedError: _spoken("round-closed", 410, "The round no longer accepts messages"),
    errors.RoundFullError: _spoken("round-full", 410, "The round is full; join a later one"),
    errors.RoundAbortedError: _spoken("round-aborted", 409, "The round ended on this server without a sum"),
    task_errors.TaskPausedError: _spoken("task-paused", 409, "This server is not taking part in new rounds"),
    errors.ControlRefusedError: _spoken("control-refused", 409, "The round cannot be closed or aborted now"),
    errors.UnknownVersionError: MODEL_UNKNOWN,
    errors.DeltaUnavailableError: _spoken("delta-unavailable", 410, "No delta is available from that version"),
    errors.CatalogueUnavailableError: _spoken(
        "catalogue-unavailable", 404, "This server has no catalogue for the task"
    ),
    errors.RollbackRefusedError: _spoken("rollback-refused", 409, "The model cannot be rolled back to that version"),
    SuccessionRefusedError: _spoken("succession-refused", 409, "The task cannot have that successor"),
    NoSuccessorError: _spoken("successor-unknown", 404, "The task has no successor here"),
    TaskSucceededError: _spoken("task-succeeded", 410, "The task has a successor"),
    errors.OutdatedRelayKeyError: _spoken(
        "relay-key-outdated", 409, "The box was encrypted to an unknown or outdated key"
    ),
    errors.RelayUnavailableError: _spoken("relay-unavailable", 404, "This task is not relayed"),
    errors.RelayRefusedError: UNAVAILABLE,  # the relay's routes return server 1's own problem
    errors.PeerRefusedError: _spoken("peer-refused", 409, "The two servers disagree"),
    errors.PeerUnavailableError: UNAVAILABLE,
    errors.UnauthorizedError: UNAUTHORIZED,
    errors.TokenExpiredError: _spoken("token-expired", 401, "The enrolment token has expired"),
    errors.TokenRevokedError: _spoken("token-revoked", 401, "The enrolment token has been revoked"),
    errors.TokenSuspendedError: replace(
        _spoken("token-suspended", 403, "The enrolment token is suspended"), retry_after=3600
    ),
    errors.ForbiddenError: FORBIDDEN,
    errors.TicketError: _spoken("ticket-refused", 403, "The ticket is not valid for this session"),
    errors.BusyError: BUSY,
    errors.RequestInvalidError: REQUEST_INVALID,
    errors.SlowBodyError: BODY_SLOW,
    errors.MediaTypeError: MEDIA_TYPE_REFUSED,
    errors.RangeError: _spoken("range-unsatisfiable", 416, "The range starts past the end of the body"),
    errors.LedgerError: INTERNAL,
    errors.LedgerUnavailableError: UNAVAILABLE,
    errors.NotRecordedError: NOT_FOUND,
    errors.UnknownTokenError: _spoken("device-unknown", 404, "No device has this name"),
    errors.LedgerConflictError: _silent("conflict", 409, "The request conflicts with the server's current state"),
    errors.TokenConflictError: _spoken("token-conflict", 409, "The token or the device's name is already in use"),
    errors.StateConflictError: _silent("round-state", 409, "The round is in the wrong state for this request"),
    ComputeUnavailableError: UNAVAILABLE,
    errors.StorageUnavailableError: UNAVAILABLE,
    errors.StorageFullError: UNAVAILABLE,
    errors.DamagedShareError: INTERNAL,
    errors.AccountingError: INTERNAL,
    errors.BudgetSpentError: _spoken("privacy-spent", 409, "The task's privacy budget is exhausted"),
    errors.ModelError: INTERNAL,
    errors.WeightsError: _silent("weights-invalid", 400, "The weights do not match the task's model"),
    errors.ModelMissingError: replace(MODEL_UNKNOWN, speaks=False),  # its message names a file
    errors.ModelConflictError: _silent("model-conflict", 409, "Another model already has this version"),
    errors.OptimiserError: INTERNAL,
}
# Raised by the framework itself; any other 4xx is an invalid request, any other 5xx is a fault of ours.
BY_STATUS: Mapping[int, Problem] = {
    problem.status: problem
    for problem in (
        UNAUTHORIZED,
        FORBIDDEN,
        NOT_FOUND,
        METHOD_NOT_ALLOWED,
        BODY_SLOW,
        MEDIA_TYPE_REFUSED,
        BUSY,
        UNAVAILABLE,
    )
}
PROBLEMS: Mapping[str, Problem] = {
    problem.slug: problem for problem in (REQUEST_INVALID, *BY_STATUS.values(), *TABLE.values())
}


def problem_for(error: type[Exception]) -> Problem:
    """Return the entry of an error class or of its nearest ancestor."""
    for ancestor in error.__mro__:
        if issubclass(ancestor, shared.SecEmbError) and ancestor in TABLE:
            return TABLE[ancestor]
    return INTERNAL


def problem_response(
    problem: Problem, error: Exception | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the document, including the error's message if it is meant for the caller."""
    document: dict[str, str | int] = {"type": problem.type, "title": problem.title, "status": problem.status}
    if problem.speaks and error is not None and (detail := _harmless(str(error))):
        document["detail"] = detail
    if (who := getattr(error, "refused_by", None)) is not None:
        document["refused_by"] = who
    extra = dict(headers or {})
    if (seconds := problem.seconds(error)) is not None:
        extra["Retry-After"] = str(seconds)
    if isinstance(error, errors.RangeError):
        extra["Content-Range"] = f"bytes */{error.size}"
    if problem.status == 401:
        extra["WWW-Authenticate"] = "Bearer"
    return JSONResponse(document, problem.status, extra, MEDIA_TYPE)


def problem_responses(*classes: type[shared.SecEmbError]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route that may raise these errors."""
    by_status: dict[int, list[Problem]] = {}
    for problem in dict.fromkeys(map(problem_for, classes)):
        by_status.setdefault(problem.status, []).append(problem)
    return {status: describe_problems(problems) for status, problems in sorted(by_status.items())}


_KNOW_WHEN = ("busy", "round-full")  # these errors carry the seconds until a retry
_HEADERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Accept-Ranges": ("`bytes`", {"type": "string"}),
    "Cache-Control": ("a published body never changes", {"type": "string"}),
    "Content-Range": ("which bytes of how many, or `bytes */` and how many", {"type": "string"}),
    "ETag": ("the SHA-256 of the whole body in hexadecimal, in quotes", {"type": "string"}),
    "Retry-After": ("seconds", {"type": "integer", "minimum": 0}),
    "WWW-Authenticate": ("`Bearer`", {"type": "string"}),
    "secemb-copy-sha256": ("the SHA-256 of the full copy that a delta leads to", {"type": "string"}),
    "secemb-model-digest": ("the model digest of this version", {"type": "string"}),
}


def describe_headers(*names: str) -> dict[str, Any]:
    """Return the OpenAPI description of the headers of an answer."""
    return {name: {"description": _HEADERS[name][0], "schema": _HEADERS[name][1]} for name in names}


def describe_problems(problems: list[Problem]) -> dict[str, Any]:
    """Return the OpenAPI response object for problems of one status."""
    response: dict[str, Any] = {
        "description": "; ".join(f"{problem.title} (`{problem.slug}`)" for problem in problems) + ".",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    told = {"Retry-After"} if any(one.retry_after is not None or one.slug in _KNOW_WHEN for one in problems) else set()
    told |= {401: {"WWW-Authenticate"}, 416: {"Content-Range"}}.get(problems[0].status, set())
    if told:
        response["headers"] = describe_headers(*sorted(told))
    return response


SCHEMA: Mapping[str, Any] = {
    "title": "Problem",
    "description": "A problem document, RFC 9457. Types are listed in docs/reference/errors.md.",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "enum": [problem.type for problem in PROBLEMS.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what happened and what to do"},
        "refused_by": {"type": "integer", "enum": [1], "description": "the server that refused, if it is not this one"},
    },
    "additionalProperties": False,
}


def noted_problem(error: Exception, refused: Refused) -> Problem:
    """Return the entry of an error; count it by its slug, and log it if the server itself is at fault."""
    problem = problem_for(type(error))
    refused(problem.slug)
    if problem is INTERNAL:
        log_failure(error)
    return problem


def log_failure(error: Exception) -> None:
    """Log an error that is the server's own fault."""
    get_logger().error("request failed", exc_info=error)


def refusal(error: Exception, refused: Refused) -> Response:
    """Return the document for an error, counted and logged."""
    return problem_response(noted_problem(error, refused), error)


def install_problems(app: FastAPI, refused: Refused) -> None:
    """Turn every error of this app into a problem document, counted by its slug."""

    async def ours(request: Request, error: Exception) -> Response:
        request.scope[SLUG] = problem_for(type(error)).slug
        return refusal(error, refused)

    async def invalid(request: Request, _error: Exception) -> Response:
        request.scope[SLUG] = REQUEST_INVALID.slug
        refused(REQUEST_INVALID.slug)
        return problem_response(REQUEST_INVALID)

    async def framework(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        problem = BY_STATUS.get(status) or (REQUEST_INVALID if status < 500 else INTERNAL)
        request.scope[SLUG] = problem.slug
        refused(problem.slug)
        allow = (getattr(error, "headers", None) or {}).get("Allow") if problem is METHOD_NOT_ALLOWED else None
        return problem_response(problem, headers={"Allow": allow} if allow else None)

    app.add_exception_handler(shared.SecEmbError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, framework)


def _harmless(detail: str) -> str | None:
    return detail if len(detail) <= _LONGEST_DETAIL and not _LOOKS_LIKE_AN_ID.search(detail) else None
