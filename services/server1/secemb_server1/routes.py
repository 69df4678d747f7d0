"""The peer channel's routes on server 1: their own listener, mutual TLS, and a bearer token known by its hash."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Request, Response, Security
from starlette.responses import StreamingResponse

from secemb_party.errors import (
    LedgerUnavailableError,
    MediaTypeError,
    PeerRefusedError,
    RequestInvalidError,
    RoundAbortedError,
    RoundClosedError,
    SlowBodyError,
    UnauthorizedError,
    UnknownRoundError,
)
from secemb_party.http.problems import Refused, noted_problem, problem_responses
from secemb_party.http.request_body import Patience, read_exactly, read_small
from secemb_party.http.requests import (
    BINARY,
    JSON,
    RoundHex,
    describe_binary,
    describe_json,
    parse_message,
    read_number,
    require_media_type,
)
from secemb_party.http.security import PEER, bearer, has_hash, needs
from secemb_party.peer_messages import (
    AbortReason,
    Announced,
    Announcement,
    Countersigned,
    ListDigest,
    Offer,
    PeerMessage,
    Prepared,
    Progress,
    Published,
    Reception,
    RolledBack,
    SessionList,
    StandingMessage,
    Steered,
    Steering,
    StoredShare,
    SuccessionFound,
    SuccessionOffer,
)
from secemb_party.relay_frames import Frame, Refusal, Reply, read_frames
from secemb_party.service import Party
from secemb_party.storage.blob import PIECE
from secemb_party.storage.transit import PIECE_DIGEST
from secemb_party.succession.errors import TaskSucceededError
from secemb_party.tenancy.errors import TaskPausedError
from secemb_server1.relay import RelayReceiver
from secemb_server1.responder import Responder
from secemb_server1.succession import SuccessionResponder
from secemb_shared.errors import EncodingError, LengthError
from secemb_shared.messages.canonical import LARGEST_NUMBER

_PATIENCE = Patience(seconds=300.0, rate=0.0)
_ON_THE_WAY_SECONDS = 5.0  # at most, since server 0 read its clock: it may have had to connect first
PieceDigest = Annotated[str, Header(alias=PIECE_DIGEST, pattern="^[0-9a-f]{64}$")]
Position = Annotated[int, Path(ge=0, le=LARGEST_NUMBER)]  # of the first byte of a piece
_FIXED = 1 << 14  # bytes of a message without its sessions
_EACH = 200  # bytes per session in a list
_REFUSED = problem_responses(
    RequestInvalidError,
    LengthError,
    EncodingError,
    UnauthorizedError,
    UnknownRoundError,
    SlowBodyError,
    PeerRefusedError,
    RoundAbortedError,
    RoundClosedError,
    TaskPausedError,
    MediaTypeError,
    LedgerUnavailableError,
)
_FRAMES = {"requestBody": describe_binary("frames of device messages, concatenated")}
_MOST_FRAMES_BYTES = (1 << 28) + (1 << 23)  # one message as long as the protocol allows, or many short ones
_TOLD = {"requestBody": describe_binary("one message per prepared session, in the order of the list")}
_PIECES = {"requestBody": describe_binary("a piece of the model's numbers, or of the rows that have changed")}

Check = Callable[[Request], None]


def bearer_check(party: Party, token_hashes: Callable[[], Collection[bytes]]) -> Check:
    """Return a dependency that admits only server 0; while server 0 changes its token, both tokens are accepted."""

    def check_bearer(request: Request) -> None:
        shown = bearer(request) or ""
        if not any(has_hash(shown, one) for one in token_hashes()):
            party.metrics.stranger()
            raise UnauthorizedError("the bearer token is not server 0's; import its pair file on server 1")
        party.metrics.heard_peer(party.clock())
        party.peer_clock.compare(request.headers, took=_ON_THE_WAY_SECONDS)

    return check_bearer


def _message(kind: type[PeerMessage], party: Party) -> Any:
    """Return a dependency that checks the bearer token and reads a message, up to the longest that a round needs."""

    async def read(request: Request) -> PeerMessage:
        require_media_type(request, JSON)
        most = _FIXED + _EACH * party.task.cohort
        return parse_message(kind, await read_small(request, _PATIENCE, most=most))

    return Depends(read)


def _describe(kind: type[PeerMessage]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **describe_json(kind)}}


def peer_routes(party: Party, responder: Responder, check_bearer: Check) -> APIRouter:
    """Return the routes that server 0 calls."""
    needed = [Security(PEER), Depends(check_bearer)]
    router = APIRouter(prefix="/peer/v1", tags=["peer"], dependencies=needed, responses=_REFUSED)

    @router.get("/standing")
    async def standing() -> StandingMessage:
        """Return the task and the published model version."""
        found = await responder.standing()
        return StandingMessage(task=party.task.task_id.hex(), version=found.version, digest=found.digest.hex())

    @router.post("/steering", openapi_extra=_describe(Steering))
    async def steering(there: Annotated[Steering, _message(Steering, party)]) -> Steered:
        """Receive server 0's state and return this server's: whether it is paused, and the open round."""
        return await responder.steer(there)

    @router.post("/announce", openapi_extra=_describe(Announcement))
    async def announce(announcement: Annotated[Announcement, _message(Announcement, party)]) -> Announced:
        """Open a round; return its id, and whether it has ended here."""
        round_id = await responder.announce(announcement)
        record, _ = await party.round(round_id)
        return Announced(digest=round_id.hex(), ended=record.ended)

    @router.get("/rounds/{round}/progress")
    async def progress(round: RoundHex) -> Progress:
        """Return how many updates are here, so that server 0 does not seal while more are being sent."""
        return Progress(updates=await responder.progress(bytes.fromhex(round)))

    @router.post("/rounds/{round}/prepare", openapi_extra=_describe(Offer))
    async def prepare(round: RoundHex, offer: Annotated[Offer, _message(Offer, party)]) -> Prepared:
        """Stop uploads; return the sessions that are complete and identical on both servers, and the rejected ones."""
        both, rejected = await responder.prepare(bytes.fromhex(round), offer.digests())
        return Prepared(sessions=[name.hex() for name in both], rejected=[name.hex() for name in rejected])

    @router.post("/rounds/{round}/verify", response_class=Response, openapi_extra=_TOLD)
    async def verify(round: RoundHex, request: Request) -> Response:
        """Receive server 0's messages about the updates of the prepared sessions; return this server's."""
        shape = party.task.norm_shape
        most = party.task.cohort * (shape.message_bytes if shape is not None else 0)
        told = await read_small(request, _PATIENCE, most=most)
        return Response(await responder.verify(bytes.fromhex(round), told), media_type=BINARY)

    @router.post("/rounds/{round}/commit", openapi_extra=_describe(SessionList))
    async def commit(round: RoundHex, sessions: Annotated[SessionList, _message(SessionList, party)]) -> ListDigest:
        """Fix the list of the sum."""
        return ListDigest(digest=(await responder.commit(bytes.fromhex(round), sessions.names())).hex())

    @router.post("/rounds/{round}/share", openapi_extra=_describe(ListDigest))
    async def share(round: RoundHex, sealed: Annotated[ListDigest, _message(ListDigest, party)]) -> StoredShare:
        """Store this server's share of the sealed list; return its size and digest."""
        return await responder.share(bytes.fromhex(round), bytes.fromhex(sealed.digest))

    @router.get("/rounds/{round}/share/{sealed}/{first}", response_class=Response)
    async def share_piece(round: RoundHex, sealed: RoundHex, first: Position) -> Response:
        """Return a piece of the share of the sealed list, from this byte on."""
        piece, digest = await responder.share_piece(bytes.fromhex(round), bytes.fromhex(sealed), first)
        return Response(piece, media_type=BINARY, headers={PIECE_DIGEST: digest})

    @router.put("/models/{digest}/{first}", openapi_extra=_PIECES)
    async def model_piece(digest: RoundHex, first: Position, request: Request, piece_digest: PieceDigest) -> Reception:
        """Receive a piece of a model, from this byte on; return how many bytes have arrived."""
        require_media_type(request, BINARY)
        piece = await read_small(request, _PATIENCE, most=PIECE)
        return await responder.take_piece(bytes.fromhex(digest), first, piece, piece_digest)

    @router.post("/rollback", openapi_extra=_describe(RolledBack))
    async def roll_back(wanted: Annotated[RolledBack, _message(RolledBack, party)]) -> Reception:
        """Publish a version that has the numbers of an older one, if they have arrived."""
        return await responder.roll_back(wanted)

    @router.post("/rounds/{round}/publish", openapi_extra=_describe(Published))
    async def publish(round: RoundHex, published: Annotated[Published, _message(Published, party)]) -> Reception:
        """Publish the next model if it has arrived, or end a round that produces none."""
        return await responder.publish(bytes.fromhex(round), published)

    @router.post("/rounds/{round}/discard", openapi_extra=_describe(AbortReason))
    async def discard(round: RoundHex, why: Annotated[AbortReason, _message(AbortReason, party)]) -> ListDigest:
        """End a round whose sum is impossible and therefore not used."""
        await responder.discard(bytes.fromhex(round), why.reason)
        return ListDigest(digest=round)

    @router.post("/rounds/{round}/abort", openapi_extra=_describe(AbortReason))
    async def abort(round: RoundHex, why: Annotated[AbortReason, _message(AbortReason, party)]) -> ListDigest:
        """End a round without a sum."""
        await responder.abort(bytes.fromhex(round), why.reason)
        return ListDigest(digest=round)

    return router


def ending_routes(responder: SuccessionResponder, check_bearer: Check) -> APIRouter:
    """Return the routes by which the two servers end a task and begin its successor."""
    needed, refused = [Security(PEER), Depends(check_bearer)], _REFUSED | problem_responses(TaskSucceededError)
    router = APIRouter(prefix="/peer/v1", tags=["peer"], dependencies=needed, responses=refused)

    @router.post("/succession", openapi_extra=_describe(SuccessionOffer))
    async def succeed(request: Request) -> Countersigned:
        """End the task with the successor that both operators have agreed to."""
        require_media_type(request, JSON)
        offer = parse_message(SuccessionOffer, await read_small(request, _PATIENCE, most=_FIXED))
        return Countersigned(signature=await responder.succeed(offer))

    @router.get("/successor")
    async def successor() -> SuccessionFound:
        """Return the link to the successor."""
        return SuccessionFound(link=responder.successor())

    return router


def relay_routes(receiver: RelayReceiver, refused: Refused, check_bearer: Check) -> APIRouter:
    """Return the routes for relayed messages."""
    router = APIRouter(prefix="/peer/v1", tags=["peer"], responses=_REFUSED)

    @router.get("/relay-key", response_class=Response, openapi_extra=needs(PEER))
    async def relay_key(request: Request) -> Response:
        """Return the signed announcement of the key that devices encrypt to."""
        check_bearer(request)
        return Response(await receiver.announce(), media_type=BINARY)

    @router.post("/relay", response_class=Response, openapi_extra=_FRAMES | needs(PEER))
    async def relay(request: Request) -> Response:
        """Accept messages of many sessions; reply to each as soon as it is durable."""
        check_bearer(request)
        announced = read_number(request.headers.get("content-length", ""))
        if announced is None or announced > _MOST_FRAMES_BYTES:
            raise LengthError("send Content-Length, and fewer frames per request")
        frames = list(read_frames(await read_exactly(request, announced, _PATIENCE)))
        return StreamingResponse(_replies(receiver, frames, refused), media_type=BINARY)

    return router


async def _replies(receiver: RelayReceiver, frames: Sequence[Frame], refused: Refused) -> AsyncIterator[bytes]:
    """Yield replies in the order in which they are ready."""
    tasks = [asyncio.ensure_future(_reply(receiver, place, frame, refused)) for place, frame in enumerate(frames)]
    try:
        for done in asyncio.as_completed(tasks):
            yield (await done).encode()
    finally:
        for task in tasks:
            task.cancel()  # server 0 closed the connection; what is durable stays, and it will retry


async def _reply(receiver: RelayReceiver, place: int, frame: Frame, refused: Refused) -> Reply:
    """Return the reply to one frame; a refusal contains only its type and does not affect other frames."""
    try:
        return Reply(place, await receiver.take(frame))
    except Exception as error:
        problem = noted_problem(error, refused)
        return Reply(place, Refusal(problem.slug, problem.seconds(error)))
