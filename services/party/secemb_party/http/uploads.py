"""The requests that are nearly all of the traffic, keys and update, served next to the framework.

FastAPI's layers between the socket and a route cost more processor time than everything else that a session needs
beyond the kernel. These need none of them: a path of two ids, two headers and a body of a known length. They are
described in OpenAPI by hand, below. Server 0 adds their relayed twins.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from secemb_party.errors import OutdatedRelayKeyError, SessionConflictError, UnknownRoundError
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
from secemb_party.party import Party, ReadBody
from secemb_party.tickets import TicketError
from secemb_party.workers import BusyError
from secemb_shared.errors import AlteredError, BoxError, LengthError, OtherRoundError, SecEmbError

Notify = Callable[[], None]
CheckUpload = Callable[[bytes, bytes, str, bytes], Awaitable[None]]  # round, session, proof, message
Take = Callable[[bytes, bytes, str, ReadBody], Awaitable[Response]]  # round, session, ticket, how to read the body

_PATH = re.compile(r"/v1/rounds/([^/]+)/sessions/([^/]+)/([a-z-]+)")
_ROUND, _SESSION = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}")
_TICKET, _LONGEST_TICKET = "secemb-ticket", 128
_PROOF, _UPDATE = "secemb-proof", "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRoute:
    """One kind of message: who takes it, and how it is described."""

    name: str  # the last word of its path
    take: Take
    summary: str
    answer: dict[str, Any]  # OpenAPI

    @property
    def path_format(self) -> str:
        """Return what measurements know a request by, as they do the framework's own routes."""
        return f"/v1/rounds/{{round}}/sessions/{{session}}/{self.name}"


def install_uploads(
    app: Service,
    party: Party,
    *,
    body_seconds: float,
    completed: Notify,
    more: tuple[UploadRoute, ...] = (),
    check_upload: CheckUpload | None = None,
) -> None:
    """Let an app take sessions' keys and updates; `completed` is called when an update is durable.

    With `check_upload` a direct update is taken only if that does not raise.
    """
    routes = {route.name: route for route in (*direct_routes(party, completed), *more)}
    # The innermost place: what surrounds every other route surrounds these as well.
    app.user_middleware.append(
        Middleware(Uploads, party=party, body_seconds=body_seconds, routes=routes, check_upload=check_upload)
    )
    app.described_by_hand |= {route.path_format: {"put": _describe(route)} for route in routes.values()}


def direct_routes(party: Party, completed: Notify) -> tuple[UploadRoute, UploadRoute]:
    """Return the routes of devices that talk to both servers."""

    async def keys(round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> Response:
        return Response(await party.keys(round_id, session_id, ticket, read), media_type=BINARY)

    async def update(round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> Response:
        digest = await party.update(round_id, session_id, ticket, read)
        completed()
        return Response(json.dumps({"sha256": digest.hex()}), media_type="application/json")

    return (
        UploadRoute(
            name="keys",
            take=keys,
            summary="Take a session's KEYS and return its ANSWER; the same bytes may come again, others get 409.",
            answer=describe_binary("ANSWER: this server's share of the rows"),
        ),
        UploadRoute(
            name=_UPDATE,
            take=update,
            summary="Take a session's UPDATE or SUM_SHARE and return a receipt once it is durable.",
            answer=describe_receipt("the SHA-256 of what is durable now", "sha256"),
        ),
    )


class Uploads:
    """Serves keys and updates, and hands on every other request."""

    def __init__(
        self,
        app: ASGIApp,
        party: Party,
        body_seconds: float,
        routes: Mapping[str, UploadRoute],
        check_upload: CheckUpload | None,
    ) -> None:
        self._app, self._party, self._body_seconds, self._routes = app, party, body_seconds, routes
        self._check_upload = check_upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        route = self._routes.get(found[3]) if found is not None else None
        if found is None or route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await self._answer(route, found[1], found[2], Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, route: UploadRoute, round_: str, session: str, request: Request) -> Response:
        if request.method != "PUT":
            self._party.metrics.refused(METHOD_NOT_ALLOWED.slug)
            return problem_response(METHOD_NOT_ALLOWED, headers={"Allow": "PUT"})
        try:
            return await self._take(route, round_, session, request)
        except SecEmbError as error:
            return refusal(error, self._party.metrics.refused)

    async def _take(self, route: UploadRoute, round_: str, session: str, request: Request) -> Response:
        ticket = request.headers.get(_TICKET, "")
        if not _ROUND.fullmatch(round_) or not _SESSION.fullmatch(session) or not 0 < len(ticket) <= _LONGEST_TICKET:
            raise RequestInvalidError("a path or header is not what the interface describes")

        ids = bytes.fromhex(round_), bytes.fromhex(session)

        async def read(length: int) -> bytes:
            body = await read_exactly(request, length, self._body_seconds)
            if self._check_upload is not None and route.name == _UPDATE:
                await self._check_upload(*ids, request.headers.get(_PROOF, ""), body)
            return body

        return await route.take(*ids, ticket, read)


def describe_receipt(description: str, *members: str) -> dict[str, Any]:
    """Return the OpenAPI description of an acknowledgement: hexadecimal digits under these names."""
    schema = {
        "title": "Receipt",
        "type": "object",
        "required": list(members),
        "properties": {name: {"type": "string"} for name in members},
    }
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _describe(route: UploadRoute) -> dict[str, Any]:
    """Return the OpenAPI operation of a route."""
    return {
        "tags": ["devices"],
        "summary": route.name.capitalize(),
        "description": route.summary,
        "operationId": f"put_{route.name.replace('-', '_')}",
        "parameters": [
            _parameter("round", "path", {"type": "string", "pattern": f"^{_ROUND.pattern}$"}),
            _parameter("session", "path", {"type": "string", "pattern": f"^{_SESSION.pattern}$"}),
            _parameter(_TICKET, "header", {"type": "string", "minLength": 1, "maxLength": _LONGEST_TICKET}),
            *([_PROOF_HEADER] if route.name == _UPDATE else []),
        ],
        "requestBody": {"required": True, **describe_binary("a message of docs/protocol.md, section 13")},
        "responses": {"200": route.answer, **{str(status): body for status, body in _REFUSED.items()}},
    }


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": schema}


_PROOF_HEADER: dict[str, Any] = {
    **_parameter(_PROOF, "header", {"type": "string", "maxLength": 32}),
    "required": False,
    "description": "for server 1, where the task has a relay_key: docs/protocol.md, section 13.5",
}
_REFUSED = problem_responses(
    RequestInvalidError,
    LengthError,
    BoxError,
    AlteredError,
    OtherRoundError,
    OutdatedRelayKeyError,
    TicketError,
    UnknownRoundError,
    SlowBodyError,
    SessionConflictError,
    MediaTypeError,
    BusyError,
    LedgerUnavailableError,
)
