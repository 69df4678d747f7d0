"""Routes of server 0 only: devices' requests for tickets, and the operator's requests to roll back the model."""

from base64 import urlsafe_b64encode
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from secemb_party.ended_rounds import EndedRounds
from secemb_party.errors import (
    LedgerUnavailableError,
    MediaTypeError,
    PeerRefusedError,
    PeerUnavailableError,
    RequestInvalidError,
    RollbackRefusedError,
    SessionConflictError,
    SlowBodyError,
    UnauthorizedError,
)
from secemb_party.http.operator_routes import OrderOf, operator_router
from secemb_party.http.problems import describe_headers, problem_responses
from secemb_party.http.request_body import Patience, read_small
from secemb_party.http.requests import (
    JSON,
    DeviceRoute,
    Number,
    TaskHex,
    describe_json,
    parse_message,
    require_media_type,
)
from secemb_party.http.security import ENROLMENT, bearer, needs
from secemb_party.http.task_routes import check_task
from secemb_party.ledger import Rollback
from secemb_party.operators import Operators
from secemb_party.service import Party
from secemb_party.tenancy.errors import TaskEndedError, UnknownTaskError
from secemb_server0.join import AnnouncedKey, NotNow, TicketIssuer
from secemb_server0.leader import Leader
from secemb_shared.errors import LengthError

Version = Annotated[Number, Path()]
Seen = Annotated[Number, Query(description="the version that is currently published")]

_LONGEST_TOKEN = 300


class JoinRequest(BaseModel):
    """A device's request to take part or to read, with the session id that it generated."""

    model_config = ConfigDict(extra="forbid")

    session: str = Field(pattern=r"^[0-9a-f]{32}$")


class JoinAnswer(BaseModel):
    """The round to take part in and its ticket; with status 202, no round can be joined now."""

    round: str | None = None
    ticket: str | None = None
    upload_until: float | None = None
    relay: str | None = None  # server 1's relay key, signed, in base64url, if the task is relayed
    paused: bool = False  # paused by an operator: no round opens until it is resumed
    rounds: EndedRounds | None = None  # how they ended: the same for every device


class ReadAnswer(BaseModel):
    """The round to read in and its ticket; empty with status 202, before the first round."""

    round: str | None = None
    ticket: str | None = None
    read_until: float | None = None


_ERRORS = (
    RequestInvalidError,
    LengthError,
    MediaTypeError,
    SlowBodyError,
    UnauthorizedError,
    UnknownTaskError,
    LedgerUnavailableError,
)
_REQUEST: dict[str, Any] = {"requestBody": {"required": True, **describe_json(JoinRequest)}, **needs(ENROLMENT)}


def join_routes(
    party: Party, issuer: TicketIssuer, *, patience: Patience, relay_key: AnnouncedKey | None = None
) -> APIRouter:
    """Return the routes by which devices get tickets."""
    router = APIRouter(prefix="/v1/tasks/{task}", tags=["devices"], route_class=DeviceRoute)
    refusal = NotNowBody(party, issuer)

    @router.post(
        "/join",
        operation_id="post_join",
        response_model=JoinAnswer,
        responses={
            202: _not_now(JoinAnswer, "no round can be joined now; see Retry-After"),
            **problem_responses(*_ERRORS, SessionConflictError, TaskEndedError),
        },
        openapi_extra=_REQUEST,
    )
    async def join(task: TaskHex, request: Request) -> Response:
        """Return a ticket for this session, or 202 with Retry-After."""
        party.space.require()
        token, session_id = await _read_join(party, task, request, patience)
        found = await issuer.join(token, session_id)
        if isinstance(found, NotNow):
            party.metrics.join("held-back" if found.held_back else "not-now", retry_after=found.seconds)
            return Response(refusal.body(), 202, {"retry-after": str(found.seconds)}, JSON)
        party.metrics.join("admitted")
        relay = await _shown(relay_key) if relay_key is not None else None
        return _answer(
            JoinAnswer(
                round=found.round,
                ticket=found.ticket,
                upload_until=found.upload_until,
                relay=relay,
                rounds=issuer.ended_rounds(),
            )
        )

    @router.post(
        "/read",
        operation_id="post_read",
        response_model=ReadAnswer,
        responses={
            202: _not_now(ReadAnswer, "no round has opened yet; see Retry-After"),
            **problem_responses(*_ERRORS),
        },
        openapi_extra=_REQUEST,
    )
    async def read(task: TaskHex, request: Request) -> Response:
        """Return a ticket to read rows in this session, or 202 with Retry-After."""
        token, session_id = await _read_join(party, task, request, patience)
        found = await issuer.read(token, session_id)
        if isinstance(found, NotNow):
            return _answer(ReadAnswer(), found)
        return _answer(ReadAnswer(round=found.round, ticket=found.ticket, read_until=found.read_until))

    return router


class NotNowBody:
    """The response for devices that cannot join now, cached: it changes rarely, and most devices request it."""

    def __init__(self, party: Party, issuer: TicketIssuer) -> None:
        self._control, self._issuer = party.control, issuer
        self._rounds, self._paused = issuer.ended_rounds(), party.control.paused
        self._body = self._encoded()

    def body(self) -> bytes:
        """Return the current response."""
        rounds, paused = self._issuer.ended_rounds(), self._control.paused
        if rounds is not self._rounds or paused != self._paused:
            self._rounds, self._paused = rounds, paused
            self._body = self._encoded()
        return self._body

    def _encoded(self) -> bytes:
        return JoinAnswer(rounds=self._rounds, paused=self._paused).model_dump_json().encode()


async def _read_join(party: Party, task: str, request: Request, patience: Patience) -> tuple[str | None, bytes]:
    """Return the enrolment token and the session id of a device's request."""
    require_media_type(request, JSON)
    body = await read_small(request, patience)
    token = bearer(request)
    if len(token or "") > _LONGEST_TOKEN:
        raise RequestInvalidError("the enrolment token is too long")
    session = parse_message(JoinRequest, body).session
    check_task(party, task)
    return token, bytes.fromhex(session)


def _answer(answer: BaseModel, later: NotNow | None = None) -> Response:
    if later is None:
        return Response(answer.model_dump_json(), media_type=JSON)
    return Response(answer.model_dump_json(), 202, {"retry-after": str(later.seconds)}, JSON)


def _not_now(answer: type[BaseModel], description: str) -> dict[str, Any]:
    """Return the OpenAPI description of the response to a device that must retry later."""
    return {"model": answer, "description": description, "headers": describe_headers("Retry-After")}


async def _shown(key: AnnouncedKey) -> str | None:
    """Return the announcement as text, or None while server 1 is unavailable: the device can fetch it later."""
    try:
        return urlsafe_b64encode(await key.get()).decode("ascii")
    except (PeerUnavailableError, PeerRefusedError):
        return None


class RollbackView(BaseModel):
    """A request to roll back, and its outcome."""

    source: int
    seen: int
    wished_at: float
    ended_at: float | None  # None: waiting for the end of the round or for server 1
    made: int | None  # the version that now has the numbers of `source`
    reason: str | None  # why it was abandoned


def rollback_routes(party: Party, leader: Leader, operators: Operators) -> APIRouter:
    """Return the routes of rollbacks."""
    router = operator_router(party, operators)

    @router.post("/models/{version}/rollback", status_code=202, responses=problem_responses(RollbackRefusedError))
    async def roll_back(version: Version, seen: Seen, order: OrderOf) -> RollbackView:
        """Publish the numbers of an older version again, before the next round. The request can be repeated."""
        return _view_rollback(await leader.roll_back(version, seen, order))

    @router.get("/rollbacks")
    async def rollbacks() -> list[RollbackView]:
        """Return the latest rollbacks, newest first."""
        return [_view_rollback(one) for one in await party.ledger.rollbacks(party.task.task_id)]

    return router


def _view_rollback(one: Rollback) -> RollbackView:
    return RollbackView(
        source=one.source,
        seen=one.seen,
        wished_at=one.wished_at,
        ended_at=one.ended_at,
        made=one.made,
        reason=one.reason,
    )
