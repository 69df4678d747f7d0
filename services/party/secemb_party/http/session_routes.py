"""The routes that carry nearly all of the traffic: a session's keys and update, and reads."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from secemb_party.errors import (
    BusyError,
    LedgerUnavailableError,
    MediaTypeError,
    RelayRefusedError,
    RequestInvalidError,
    RoundClosedError,
    RoundFullError,
    SessionConflictError,
    SlowBodyError,
    TicketError,
    UnknownRoundError,
    UnknownSessionError,
)
from secemb_party.http.problems import PROBLEMS, problem_for, problem_responses
from secemb_party.http.request_body import Bodies
from secemb_party.http.requests import (
    BINARY,
    DeviceRoute,
    RoundHex,
    SessionHex,
    describe_binary,
    describe_mac,
    read_claim,
    read_mac,
)
from secemb_party.http.security import TICKET, needs
from secemb_party.intake import Expected
from secemb_party.service import Party
from secemb_party.tickets import Claim
from secemb_party.upload_macs import Sent
from secemb_shared.errors import LengthError, MacError, MessageError, RingError, SecEmbError, SessionError

Notify = Callable[[], None]

# Errors with which any message of a session may be refused.
SESSION_ERRORS = (
    RequestInvalidError,
    LengthError,
    TicketError,
    UnknownRoundError,
    UnknownSessionError,
    RoundClosedError,
    RoundFullError,
    SlowBodyError,
    SessionConflictError,
    MediaTypeError,
    BusyError,
    LedgerUnavailableError,
)
_MESSAGE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        **describe_binary("a message as defined in docs/reference/protocol.md, section 13"),
    }
}
WITH_TICKET = _MESSAGE | needs(TICKET)
WITH_TICKET_AND_MAC = WITH_TICKET | {"parameters": [describe_mac()]}


class Receipt(BaseModel):
    """What is durable now."""

    sha256: str  # of the message


def session_router() -> APIRouter:
    """Return a router for the messages of one session."""
    return APIRouter(prefix="/v1/rounds/{round}/sessions/{session}", tags=["devices"], route_class=DeviceRoute)


def session_routes(party: Party, bodies: Bodies, *, completed: Notify) -> APIRouter:
    """Return the routes of devices that use both servers; `completed` is called when an update is durable."""
    router = session_router()
    answer: dict[int | str, Any] = {200: describe_binary("ANSWER: this server's share of the rows")}

    @router.put(
        "/keys",
        operation_id="put_keys",
        response_class=Response,
        responses=answer | problem_responses(*SESSION_ERRORS),
        openapi_extra=WITH_TICKET,
    )
    async def keys(round: RoundHex, session: SessionHex, request: Request) -> Response:
        """Accept a session's KEYS and return its ANSWER. The same bytes may be sent again; different ones get 409."""
        claim = read_claim(request, round, session)
        async with noting_refusals(party, claim):
            return await answer_keys(party.intake.expect_keys, claim, request, bodies)

    @router.put(
        "/update",
        operation_id="put_update",
        response_model=Receipt,
        responses=problem_responses(*SESSION_ERRORS, MacError),
        openapi_extra=WITH_TICKET_AND_MAC,
    )
    async def update(round: RoundHex, session: SessionHex, request: Request) -> Response:
        """Accept a session's UPDATE or SUM_SHARE and return a receipt once it is durable."""
        claim = read_claim(request, round, session)
        async with noting_refusals(party, claim):
            with bodies.of(claim.session_id) as read:
                expected = await party.intake.expect_update(claim)
                mac = read_mac(request)  # after the ticket check, so a device is responsible
                kept = await expected.take(Sent(await read(request, expected.length), mac))
        completed()
        return JSONResponse({"sha256": kept.digest.hex()})

    @router.post(
        "/rows",
        operation_id="post_rows",
        response_class=Response,
        responses=answer | problem_responses(*SESSION_ERRORS),
        openapi_extra=WITH_TICKET,
    )
    async def rows(round: RoundHex, session: SessionHex, request: Request) -> Response:
        """Return the ANSWER to a KEYS message without storing it. Requires a read ticket."""
        return await answer_keys(party.intake.expect_rows, read_claim(request, round, session), request, bodies)

    return router


# Errors for which the sender of a message is responsible, not the network or timing. Its ticket has been checked by
# then.
_BLAMED = (MessageError, MacError, RingError, SessionError)
_BLAMED_THERE = ("message-", "relay-box", "relay-altered", "relay-round", "proof-refused", "session-conflict")


@asynccontextmanager
async def noting_refusals(party: Party, claim: Claim) -> AsyncIterator[None]:
    """Let server 0 count a refused message for its session's device, to tell devices' faults from servers'."""
    try:
        yield
    except SecEmbError as error:
        slug = _blame(error)
        if slug is not None and party.role == 0:
            await party.ledger.note_refusal(claim.session_id, slug, party.clock())
        raise


def _blame(error: SecEmbError) -> str | None:
    if isinstance(error, RelayRefusedError):
        slug = error.refusal.slug
        return slug if slug in PROBLEMS and slug.startswith(_BLAMED_THERE) else None
    return problem_for(type(error)).slug if isinstance(error, _BLAMED) else None


async def answer_keys(
    expect: Callable[[Claim], Awaitable[Expected[bytes, bytes]]], claim: Claim, request: Request, bodies: Bodies
) -> Response:
    """Read a KEYS message and return the answer to it."""
    with bodies.of(claim.session_id) as read:
        expected = await expect(claim)
        answer = await expected.take(await read(request, expected.length))
    return Response(answer, media_type=BINARY)
