"""Reading rows without taking part: KEYS come, the ANSWER goes, and nothing is kept.

The same places and workers serve these as serve sessions that take part, so that a crowd of readers is turned away
(429, before its bodies are read) rather than slowing a round down without limit.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from secemb_party.errors import RoundClosedError, SessionConflictError, UnknownRoundError
from secemb_party.http.bodies import BINARY, MediaTypeError, SlowBodyError, describe_binary, read_exactly
from secemb_party.http.devices import RoundHex, SessionHex
from secemb_party.http.problems import problem_responses
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.party import Party
from secemb_party.tickets import TicketError
from secemb_party.workers import BusyError
from secemb_shared.errors import LengthError

Ticket = Annotated[str, Header(alias="secemb-ticket", max_length=128)]

_KEYS: dict[str, Any] = {"requestBody": {"required": True, **describe_binary("KEYS of docs/protocol.md, section 13")}}
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
