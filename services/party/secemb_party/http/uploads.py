"""The two requests that are nearly all of the traffic, keys and update, served next to the framework.

FastAPI's layers between the socket and a route cost more processor time than everything else that a session needs
beyond the kernel. These two need none of them: a path of two ids, two headers and a body of a known length. They are
described in OpenAPI by hand, below.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from secemb_party.errors import SessionConflictError, UnknownRoundError
from secemb_party.http.app import Service
from secemb_party.http.bodies import (
    BINARY,
    MediaTypeError,
    RequestInvalidError,
    SlowBodyError,
    describe_binary,
    read_exactly,
)
from secemb_party.http.problems import METHOD_NOT_ALLOWED, problem_response, problem_responses, refusal
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.party import Party
from secemb_party.tickets import TicketError
from secemb_party.workers import BusyError
from secemb_shared.errors import LengthError, SecEmbError

Notify = Callable[[], None]

_PATH = re.compile(r"/v1/rounds/([^/]+)/sessions/([^/]+)/(keys|update)")
_ROUND, _SESSION = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}")
_TICKET, _LONGEST_TICKET = "secemb-ticket", 128


@dataclass(frozen=True, slots=True)
class _Route:
    """What measurements know a request by, as they do the framework's own routes."""

    path_format: str


_ROUTES = {what: _Route(f"/v1/rounds/{{round}}/sessions/{{session}}/{what}") for what in ("keys", "update")}


def install_uploads(app: Service, party: Party, *, body_seconds: float, completed: Notify) -> None:
    """Let an app take sessions' keys and updates; `completed` is called when an update is durable."""
    # The innermost place: what surrounds every other route surrounds these two as well.
    app.user_middleware.append(Middleware(Uploads, party=party, body_seconds=body_seconds, completed=completed))
    app.described_by_hand |= {_ROUTES[what].path_format: {"put": _describe(what)} for what in _ROUTES}


class Uploads:
    """Serves keys and update, and hands on every other request."""

    def __init__(self, app: ASGIApp, party: Party, body_seconds: float, completed: Notify) -> None:
        self._app, self._party, self._body_seconds, self._completed = app, party, body_seconds, completed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        round_, session, what = found.groups()
        scope["route"] = _ROUTES[what]
        response = await self._answer(what, round_, session, Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, what: str, round_: str, session: str, request: Request) -> Response:
        if request.method != "PUT":
            self._party.metrics.refused(METHOD_NOT_ALLOWED.slug)
            return problem_response(METHOD_NOT_ALLOWED, headers={"Allow": "PUT"})
        try:
            return await self._take(what, round_, session, request)
        except SecEmbError as error:
            return refusal(error, self._party.metrics.refused)

    async def _take(self, what: str, round_: str, session: str, request: Request) -> Response:
        ticket = request.headers.get(_TICKET, "")
        if not _ROUND.fullmatch(round_) or not _SESSION.fullmatch(session) or not 0 < len(ticket) <= _LONGEST_TICKET:
            raise RequestInvalidError("a path or header is not what the interface describes")
        ids = bytes.fromhex(round_), bytes.fromhex(session)

        async def read(length: int) -> bytes:
            return await read_exactly(request, length, self._body_seconds)

        if what == "keys":
            return Response(await self._party.keys(*ids, ticket, read), media_type=BINARY)
        digest = await self._party.update(*ids, ticket, read)
        self._completed()
        return Response(json.dumps({"sha256": digest.hex()}), media_type="application/json")


def _describe(what: str) -> dict[str, Any]:
    """Return the OpenAPI operation of one of the two."""
    summaries = {
        "keys": "Take a session's KEYS and return its ANSWER; the same bytes may come again, others get 409.",
        "update": "Take a session's UPDATE or SUM_SHARE and return a receipt once it is durable.",
    }
    answers = {"keys": describe_binary("ANSWER: this server's share of the rows"), "update": _RECEIPT}
    return {
        "tags": ["devices"],
        "summary": what.capitalize(),
        "description": summaries[what],
        "operationId": f"put_{what}",
        "parameters": [
            _parameter("round", "path", {"type": "string", "pattern": f"^{_ROUND.pattern}$"}),
            _parameter("session", "path", {"type": "string", "pattern": f"^{_SESSION.pattern}$"}),
            _parameter(_TICKET, "header", {"type": "string", "minLength": 1, "maxLength": _LONGEST_TICKET}),
        ],
        "requestBody": {"required": True, **describe_binary("a message of docs/protocol.md, section 13")},
        "responses": {"200": answers[what], **{str(status): body for status, body in _REFUSED.items()}},
    }


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": schema}


_RECEIPT: dict[str, Any] = {
    "description": "the SHA-256 of what is durable now",
    "content": {
        "application/json": {
            "schema": {
                "title": "Receipt",
                "type": "object",
                "required": ["sha256"],
                "properties": {"sha256": {"type": "string"}},
            }
        }
    },
}
_REFUSED = problem_responses(
    RequestInvalidError,
    LengthError,
    TicketError,
    UnknownRoundError,
    SlowBodyError,
    SessionConflictError,
    MediaTypeError,
    BusyError,
    LedgerUnavailableError,
)
