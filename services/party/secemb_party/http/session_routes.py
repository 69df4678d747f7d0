"""The requests that are nearly all of the traffic: keys, updates and reads."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from secemb_party.errors import (
    BusyError,
    OutdatedRelayKeyError,
    RoundClosedError,
    SessionConflictError,
    UnknownRoundError,
    UnknownSessionError,
)
from secemb_party.http.app import Service
from secemb_party.http.by_hand import HandRequest, HandRoute, describe_parameter
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import (
    BINARY,
    MediaTypeError,
    RequestInvalidError,
    SlowBodyError,
    describe_binary,
    read_exactly,
)
from secemb_party.http.task_routes import RoundHex, SessionHex
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.service import Party, ReadBody, ReadUpload
from secemb_party.tickets import TicketError
from secemb_party.upload_macs import Sent
from secemb_shared.errors import AlteredError, BoxError, LengthError, MacError, OtherRoundError
from secemb_shared.holds import MARK_BYTES

Ticket = Annotated[str, Header(alias="secemb-ticket", max_length=128)]

_KEYS: dict[str, Any] = {
    "requestBody": {"required": True, **describe_binary("KEYS of docs/reference/protocol.md, section 13")}
}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: describe_binary("ANSWER: this server's share of the rows"),
    **problem_responses(
        LengthError,
        TicketError,
        UnknownRoundError,
        SlowBodyError,
        SessionConflictError,
        RoundClosedError,
        MediaTypeError,
        BusyError,
        LedgerUnavailableError,
    ),
}


def read_routes(party: Party, *, body_seconds: float) -> APIRouter:
    """Return the route by which devices read rows."""
    router = APIRouter(prefix="/v1", tags=["devices"])

    @router.post(
        "/rounds/{round}/sessions/{session}/rows",
        response_class=Response,
        responses=_ANSWER,
        openapi_extra=_KEYS,
    )
    async def rows(round: RoundHex, session: SessionHex, ticket: Ticket, request: Request) -> Response:
        """Return the ANSWER to a KEYS message and keep nothing; it takes a read ticket."""

        async def read(length: int) -> bytes:
            return await read_exactly(request, length, body_seconds)

        answer = await party.read_rows(bytes.fromhex(round), bytes.fromhex(session), ticket, read)
        return Response(answer, media_type=BINARY)

    return router


Notify = Callable[[], None]
Take = Callable[["Arrival"], Awaitable[Response]]

_ROUND, _SESSION = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}")
_TICKET, _LONGEST_TICKET = "secemb-ticket", 128
_MAC, _MAC_DIGITS = "secemb-proof", re.compile(rf"[0-9a-f]{{{2 * MARK_BYTES}}}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Arrival:
    """A message that has not been read yet: where it belongs, and what was shown with it."""

    round_id: bytes
    session_id: bytes
    ticket: str
    mac: bytes  # empty for keys
    read: ReadBody


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRoute:
    """One kind of message: who takes it, and how it is described."""

    name: str  # the last word of its path
    take: Take
    proven: bool = False  # asks for the MAC of an upload
    summary: str
    answer: dict[str, Any]  # OpenAPI


def install_uploads(
    app: Service,
    party: Party,
    *,
    body_seconds: float,
    completed: Notify,
    more: tuple[UploadRoute, ...] = (),
) -> None:
    """Let an app take sessions' keys and updates; `completed` is called when an update is durable."""
    app.by_hand.extend(_hand_route(route, body_seconds) for route in (*direct_routes(party, completed), *more))


def direct_routes(party: Party, completed: Notify) -> tuple[UploadRoute, UploadRoute]:
    """Return the routes of devices that talk to both servers."""

    async def keys(came: Arrival) -> Response:
        answer = await party.keys(came.round_id, came.session_id, came.ticket, came.read)
        return Response(answer, media_type=BINARY)

    async def update(came: Arrival) -> Response:
        read = with_mac(came.read, came.mac)
        kept = await party.update(came.round_id, came.session_id, came.ticket, read)
        completed()
        return Response(json.dumps({"sha256": kept.digest.hex()}), media_type="application/json")

    return (
        UploadRoute(
            name="keys",
            take=keys,
            summary="Take a session's KEYS and return its ANSWER; the same bytes may come again, others get 409.",
            answer=describe_binary("ANSWER: this server's share of the rows"),
        ),
        UploadRoute(
            name="update",
            take=update,
            proven=True,
            summary="Take a session's UPDATE or SUM_SHARE and return a receipt once it is durable.",
            answer=describe_receipt("the SHA-256 of what is durable now", "sha256"),
        ),
    )


def _hand_route(route: UploadRoute, body_seconds: float) -> HandRoute:
    async def serve(request: HandRequest, round_: str, session: str) -> Response:
        ticket = request.headers.get(_TICKET, "")
        if not _ROUND.fullmatch(round_) or not _SESSION.fullmatch(session) or not 0 < len(ticket) <= _LONGEST_TICKET:
            raise RequestInvalidError("a path or header is not what the interface describes")
        came = Arrival(
            round_id=bytes.fromhex(round_),
            session_id=bytes.fromhex(session),
            ticket=ticket,
            mac=_mac(request) if route.proven else b"",
            read=lambda length: read_exactly(request, length, body_seconds),
        )
        return await route.take(came)

    path = f"/v1/rounds/{{round}}/sessions/{{session}}/{route.name}"
    return HandRoute(method="PUT", path_format=path, serve=serve, operation=_describe(route))


def _mac(request: HandRequest) -> bytes:
    digits = request.headers.get(_MAC, "")
    if not _MAC_DIGITS.fullmatch(digits):
        raise MacError(f"send the MAC of this upload in the header {_MAC}: docs/reference/protocol.md, section 13.2")
    return bytes.fromhex(digits)


def with_mac(read: ReadBody, mac: bytes) -> ReadUpload:
    """Return how an upload is read together with the MAC that was shown for it."""

    async def read_sent(length: int) -> Sent:
        return Sent(await read(length), mac)

    return read_sent


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
            describe_parameter("round", "path", {"type": "string", "pattern": f"^{_ROUND.pattern}$"}),
            describe_parameter("session", "path", {"type": "string", "pattern": f"^{_SESSION.pattern}$"}),
            describe_parameter(_TICKET, "header", {"type": "string", "minLength": 1, "maxLength": _LONGEST_TICKET}),
            *([_MAC_HEADER] if route.proven else []),
        ],
        "requestBody": {"required": True, **describe_binary("a message of docs/reference/protocol.md, section 13")},
        "responses": {"200": route.answer, **_REFUSED},
    }


_MAC_HEADER: dict[str, Any] = {
    **describe_parameter(_MAC, "header", {"type": "string", "pattern": f"^{_MAC_DIGITS.pattern}$"}),
    "description": "shows that the upload comes from whoever made the keys: docs/reference/protocol.md, section 13.2",
}
_REFUSED = problem_responses(
    RequestInvalidError,
    LengthError,
    BoxError,
    AlteredError,
    OtherRoundError,
    OutdatedRelayKeyError,
    MacError,
    TicketError,
    UnknownRoundError,
    UnknownSessionError,
    RoundClosedError,
    SlowBodyError,
    SessionConflictError,
    MediaTypeError,
    BusyError,
    LedgerUnavailableError,
)
