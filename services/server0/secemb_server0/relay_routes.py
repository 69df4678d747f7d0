"""The routes of devices that use server 0 only."""

from fastapi import Request
from fastapi.routing import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from secemb_party.errors import OutdatedRelayKeyError, RelayRefusedError
from secemb_party.http.problems import PROBLEMS, UNAVAILABLE, problem_for, problem_response, problem_responses
from secemb_party.http.request_body import Bodies
from secemb_party.http.requests import (
    RoundHex,
    SessionHex,
    describe_binary,
    read_claim,
    read_mac,
)
from secemb_party.http.session_routes import (
    SESSION_ERRORS,
    WITH_TICKET,
    WITH_TICKET_AND_MAC,
    Notify,
    answer_keys,
    noting_refusals,
    session_router,
)
from secemb_party.service import Party
from secemb_party.upload_macs import Sent
from secemb_server0.join import AnnouncedKey
from secemb_server0.relay import RelayedSessions
from secemb_shared.errors import AlteredError, BoxError, MacError, OtherRoundError

_ERRORS = (*SESSION_ERRORS, BoxError, AlteredError, OtherRoundError, OutdatedRelayKeyError)
_OUTDATED = problem_for(OutdatedRelayKeyError)


class RelayedReceipt(BaseModel):
    """What is durable now on both servers."""

    sha256: str  # of this server's part of the message
    receipt: str  # server 1's, for the device to check


def relayed_routes(
    party: Party, sessions: RelayedSessions, key: AnnouncedKey, bodies: Bodies, *, completed: Notify
) -> APIRouter:
    """Return the routes; `completed` is called when an update is durable on both servers."""
    router = session_router()

    def refuse(error: RelayRefusedError) -> Response:
        """Return server 1's refusal to the device, in the form that server 1 would use."""
        problem = PROBLEMS.get(error.refusal.slug, UNAVAILABLE)
        party.metrics.refused(problem.slug)
        if problem is _OUTDATED:
            key.forget()
        return problem_response(problem, error)

    @router.put(
        "/relayed-keys",
        operation_id="put_relayed_keys",
        response_class=Response,
        responses={
            200: describe_binary("RELAYED_ANSWER: both servers' shares of the rows, combined and masked by server 1"),
            **problem_responses(*_ERRORS),
        },
        openapi_extra=WITH_TICKET,
    )
    async def relayed_keys(round: RoundHex, session: SessionHex, request: Request) -> Response:
        """Accept RELAYED_KEYS, forward server 1's part and return RELAYED_ANSWER once both servers hold the keys."""
        claim = read_claim(request, round, session)
        try:
            async with noting_refusals(party, claim):
                return await answer_keys(sessions.expect_keys, claim, request, bodies)
        except RelayRefusedError as error:
            return refuse(error)

    @router.put(
        "/relayed-update",
        operation_id="put_relayed_update",
        response_model=RelayedReceipt,
        responses=problem_responses(*_ERRORS, MacError),
        openapi_extra=WITH_TICKET_AND_MAC,
    )
    async def relayed_update(round: RoundHex, session: SessionHex, request: Request) -> Response:
        """Accept RELAYED_UPLOAD, forward server 1's part and return receipts once both servers hold the upload."""
        claim = read_claim(request, round, session)
        try:
            async with noting_refusals(party, claim):
                with bodies.of(claim.session_id) as read:
                    expected = await sessions.expect_update(claim)
                    mac = read_mac(request)
                    kept = await expected.take(Sent(await read(request, expected.length), mac))
        except RelayRefusedError as error:
            return refuse(error)
        completed()
        return JSONResponse({"sha256": kept.own.digest.hex(), "receipt": kept.other.hex()})

    return router
