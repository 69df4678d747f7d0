"""The peer channel's routes on server 1: a listener of their own, mutual TLS, and a bearer known by its hash."""

import hashlib
import hmac
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import ValidationError

from secemb_party.errors import PeerRefusedError, RoundClosedError, UnauthorizedError, UnknownRoundError
from secemb_party.http import requests
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import (
    BINARY,
    JSON,
    MediaTypeError,
    RequestInvalidError,
    SlowBodyError,
    read_exactly,
    read_number,
)
from secemb_party.http.task_routes import RoundHex
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.peer_messages import (
    AbortReason,
    Announcement,
    ListDigest,
    Offer,
    PeerMessage,
    Progress,
    Published,
    RolledBack,
    SessionList,
    StandingMessage,
)
from secemb_party.service import Party
from secemb_party.storage import Shape
from secemb_server1.responder import Responder
from secemb_shared.errors import EncodingError, LengthError

BODY_SECONDS = 300.0
PublishedHeader = Annotated[str, Header(alias="secemb-published", max_length=500)]
Facts = TypeVar("Facts", bound=Published)
_WORDS = 1 << 14  # bytes of a message, names of sessions apart
_NAMES = 200  # bytes that a session needs on a list
PEER_REFUSED = problem_responses(
    RequestInvalidError,
    LengthError,
    EncodingError,
    UnauthorizedError,
    UnknownRoundError,
    SlowBodyError,
    PeerRefusedError,
    RoundClosedError,
    MediaTypeError,
    LedgerUnavailableError,
)
_NUMBERS = {"requestBody": requests.describe_binary("the numbers of the model; empty where a round leads to none")}

Check = Callable[..., None]


def bearer_check(party: Party, token_hash: bytes) -> Check:
    """Return what lets server 0 in and nobody else."""

    def check_bearer(authorization: Annotated[str, Header(max_length=300)] = "") -> None:
        given = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).digest()
        if not hmac.compare_digest(given, token_hash):
            party.metrics.stranger()
            raise UnauthorizedError("this is not the peer's token; pair the two servers again")
        party.metrics.heard_peer(party.clock())

    return check_bearer


def _message(kind: type[PeerMessage], party: Party) -> Any:
    """Return how a message is read: after the bearer was looked at, and no longer than a round's can be."""

    async def read(request: Request) -> PeerMessage:
        if requests.media_type(request) != JSON:
            raise MediaTypeError(f"send the message as {JSON}")
        most = _WORDS + _NAMES * party.task.cohort
        return requests.parse_message(kind, await requests.read_small(request, BODY_SECONDS, most=most))

    return Depends(read)


def _describe(kind: type[PeerMessage]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **requests.describe_json(kind)}}


def peer_routes(party: Party, responder: Responder, check_bearer: Check) -> APIRouter:
    """Return what server 0 may call."""
    router = APIRouter(prefix="/peer/v1", tags=["peer"], dependencies=[Depends(check_bearer)], responses=PEER_REFUSED)

    @router.get("/standing")
    async def standing() -> StandingMessage:
        """Return the task and the published model version."""
        found = await responder.standing()
        return StandingMessage(task=party.task.task_id.hex(), version=found.version, digest=found.digest.hex())

    @router.post("/announce", openapi_extra=_describe(Announcement))
    async def announce(announcement: Annotated[Announcement, _message(Announcement, party)]) -> ListDigest:
        """Open a round; return its id."""
        return ListDigest(digest=(await responder.announce(announcement)).hex())

    @router.get("/rounds/{round}/progress")
    async def progress(round: RoundHex) -> Progress:
        """Return how many updates are here, so that sealing leaves out nobody who is on the way."""
        return Progress(updates=await responder.progress(bytes.fromhex(round)))

    @router.post("/rounds/{round}/prepare", openapi_extra=_describe(Offer))
    async def prepare(round: RoundHex, offer: Annotated[Offer, _message(Offer, party)]) -> SessionList:
        """Stop uploads; return the sessions that both sides hold complete with equal public parts."""
        both = await responder.prepare(bytes.fromhex(round), offer.digests())
        return SessionList(sessions=[name.hex() for name in both])

    @router.post("/rounds/{round}/commit", openapi_extra=_describe(SessionList))
    async def commit(round: RoundHex, sessions: Annotated[SessionList, _message(SessionList, party)]) -> ListDigest:
        """Fix the list of the sum."""
        return ListDigest(digest=(await responder.commit(bytes.fromhex(round), sessions.names())).hex())

    @router.post("/rounds/{round}/share", response_class=Response, openapi_extra=_describe(ListDigest))
    async def share(round: RoundHex, sealed: Annotated[ListDigest, _message(ListDigest, party)]) -> Response:
        """Return this server's share of the sealed list."""
        data = await responder.share(bytes.fromhex(round), bytes.fromhex(sealed.digest))
        return Response(data, media_type=BINARY)

    @router.post("/rollback", openapi_extra=_NUMBERS)
    async def roll_back(request: Request, published: PublishedHeader) -> ListDigest:
        """Take over a version that has the numbers of an older one."""
        facts = _read(RolledBack, published)
        body = await read_exactly(request, 4 * Shape.of(party.task).numbers, BODY_SECONDS)
        return ListDigest(digest=(await responder.roll_back(facts, body)).hex())

    @router.post("/rounds/{round}/publish", openapi_extra=_NUMBERS)
    async def publish(round: RoundHex, request: Request, published: PublishedHeader) -> ListDigest:
        """Take over the next model, or the end of a round without one."""
        facts = _read(Published, published)
        announced = read_number(request.headers.get("content-length", "0"))
        length = 0 if announced == 0 else 4 * Shape.of(party.task).numbers
        body = await read_exactly(request, length, BODY_SECONDS)
        return ListDigest(digest=(await responder.publish(bytes.fromhex(round), facts, body)).hex())

    @router.post("/rounds/{round}/abort", openapi_extra=_describe(AbortReason))
    async def abort(round: RoundHex, why: Annotated[AbortReason, _message(AbortReason, party)]) -> ListDigest:
        """End a round without a sum."""
        await responder.abort(bytes.fromhex(round), why.reason)
        return ListDigest(digest=round)

    return router


def _read(kind: type[Facts], header: str) -> Facts:
    try:
        return kind.model_validate_json(header)
    except ValidationError:
        raise PeerRefusedError("the header of the published model cannot be read") from None
