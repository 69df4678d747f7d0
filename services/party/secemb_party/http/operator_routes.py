"""The operator API: rounds, model versions, refusals, and events as they happen.

Nothing here is about a single device: counts, digests, times and states only.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path, Query, Request, Security
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from secemb_party.control import waits_for_devices
from secemb_party.errors import ForbiddenError, LedgerUnavailableError, UnauthorizedError, UnknownRoundError
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import Number, Reason, read_number
from secemb_party.http.security import OPERATOR, bearer
from secemb_party.ledger import Event, RoundRecord
from secemb_party.operators import Operator, OperatorRole, Operators, Order
from secemb_party.parts import Clock
from secemb_party.service import Party
from secemb_shared.messages.spec import TRAIN

POLL_SECONDS = 1.0
STREAM_SECONDS = 10.0
_PAGE = 200
Tell = Callable[[Event], str | None]  # an event on one line, or None to omit it

_REFUSED = problem_responses(UnauthorizedError, ForbiddenError, UnknownRoundError, LedgerUnavailableError)


class RoundView(BaseModel):
    """One round as this server knows it."""

    number: int
    kind: str
    state: str
    model_version: int
    next_version: int | None
    opened_at: float
    sealing_at: float | None
    sealed_at: float | None
    shared_at: float | None
    reconstructed_at: float | None
    ended_at: float | None
    join_until: float
    upload_until: float
    waiting: bool  # for devices: it is open, has too few sessions, and none is on the way
    admitted: int
    keys: int
    updates: int
    counted: int | None  # sessions on the sealed list
    list_digest: str | None
    share_digest: str | None
    reason: str | None


class VersionView(BaseModel):
    """One version of the model."""

    version: int
    digest: str
    recorded_at: float
    published_at: float | None
    kept: bool  # the file still exists


class Overview(BaseModel):
    """The task and its progress."""

    task_id: str
    task: str
    role: int
    round: RoundView | None
    model_version: int | None
    trained_rounds: int  # training rounds whose sum was opened; surveys, evaluations and aborted rounds do not count
    finished: bool  # no round is open, and none will: the task has had its rounds, or its privacy budget is spent


class ActionView(BaseModel):
    """An operator's action."""

    number: int
    at: float
    by: str  # the name of an operator token, or the user of a command on the server's own machine
    what: str
    reason: str | None
    data: dict[str, Any]
    task: str | None  # its id; None: about the server


class PrivacyView(BaseModel):
    """The privacy cost of rounds of one kind on this server."""

    kind: str
    shares: int  # shares of sums that this server has released
    epsilon: float  # with a sampling rate: against anyone who does not know who took part
    epsilon_known: float  # against anyone who knows, as server 0 does from enrolment tokens
    delta: float
    budget: float  # of epsilon
    projected: float  # ε after all rounds that are still allowed
    projected_known: float
    remaining: int  # rounds that are still allowed
    exhausted: bool  # one more round would exceed the budget


class Clocked(Protocol):
    """Whatever has a clock: a party, or the host of all tasks."""

    @property
    def clock(self) -> Clock:
        """Return the clock by which tokens expire."""


def operator_router(party: Clocked, operators: Operators, role: OperatorRole | None = None) -> APIRouter:
    """Return a router for routes that need an operator token of a role.

    Without a role, GET needs read-only, and every other method admin, so no route that changes something can miss it.
    """

    def check_operator(request: Request) -> None:
        needed = role or (OperatorRole.READ_ONLY if request.method == "GET" else OperatorRole.ADMIN)
        request.state.operator = operators.require(bearer(request) or "", needed, party.clock())

    needed = [Security(OPERATOR), Depends(check_operator)]
    return APIRouter(prefix="/v1/operator", tags=["operator"], dependencies=needed, responses=_REFUSED)


Why = Annotated[Reason | None, Query(description="the reason, for the record")]


def _order(request: Request, reason: Why = None) -> Order:
    operator: Operator = request.state.operator
    return Order(operator.name, reason)


OrderOf = Annotated[Order, Depends(_order)]  # who requested a change, and why; for routes of `operator_router`


def operator_routes(party: Party, operators: Operators) -> APIRouter:
    """Return the routes that all operators may use."""
    router = operator_router(party, operators)
    task_id = party.task.task_id

    @router.get("/overview")
    async def overview() -> Overview:
        """Return the task, the current round and the published version."""
        current = await party.ledger.current_round(task_id)
        published, trained = await party.ledger.published_version(task_id), await party.trained()
        return Overview(
            task_id=task_id.hex(),
            task=party.task.encode().decode(),
            role=party.role,
            round=await _view(party, current) if current is not None else None,
            model_version=published.version if published is not None else None,
            trained_rounds=trained,
            finished=current is None and (trained >= party.task.rounds or not await party.spending.affords(TRAIN)),
        )

    @router.get("/rounds")
    async def rounds(
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50, before: Annotated[Number | None, Query()] = None
    ) -> list[RoundView]:
        """Return rounds, newest first."""
        found = await party.ledger.rounds(task_id, limit=limit, before_number=before)
        return [await _view(party, record) for record in found]

    @router.get("/rounds/{number}")
    async def one_round(number: Annotated[Number, Path()]) -> RoundView:
        """Return one round."""
        found = await party.ledger.rounds(task_id, limit=1, before_number=number + 1)
        if not found or found[0].number != number:
            raise UnknownRoundError("there is no round with this number")
        return await _view(party, found[0])

    @router.get("/models")
    async def models() -> list[VersionView]:
        """Return the versions of the model, oldest first."""
        kept = set(party.models.versions())
        return [
            VersionView(
                version=one.version,
                digest=one.digest.hex(),
                recorded_at=one.recorded_at,
                published_at=one.published_at,
                kept=one.version in kept,
            )
            for one in await party.ledger.versions(task_id)
        ]

    @router.get("/privacy")
    async def privacy() -> list[PrivacyView]:
        """Return the state of the privacy budget by kind of round. A task without noise has none."""
        return [PrivacyView(**asdict(one)) for one in await party.spending.standing()]

    @router.get("/actions")
    async def actions(
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50, before: Annotated[Number | None, Query()] = None
    ) -> list[ActionView]:
        """Return operators' actions, newest first."""
        found = await party.ledger.actions(limit=limit, before=before)
        return [
            ActionView(
                number=one.action_id,
                at=one.at,
                by=one.by,
                what=one.what,
                reason=one.reason,
                data=dict(one.data),
                task=one.task_id.hex() if one.task_id is not None else None,
            )
            for one in found
        ]

    @router.get("/refusals")
    async def refusals() -> dict[str, int]:
        """Return how often each kind of request was refused since the start, including refusals by the peer."""
        return party.metrics.refusals()

    @router.get("/events", response_class=StreamingResponse)
    async def events(request: Request, after: Annotated[Number, Query()] = 0) -> StreamingResponse:
        """Stream events as they happen (server-sent events); `after` or Last-Event-ID resumes."""
        return event_stream(party, request, after)

    return router


def as_json(event: Event) -> str:
    """Return an event as JSON, for programs."""
    return json.dumps({"at": event.at, **event.data}, sort_keys=True)


def event_stream(party: Party, request: Request, after: int, tell: Tell = as_json) -> StreamingResponse:
    """Return the events after `after` or Last-Event-ID, as server-sent events."""
    last = read_number(request.headers.get("last-event-id", ""))
    told = _stream(party, after if last is None else last, request, tell)
    return StreamingResponse(told, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _view(party: Party, record: RoundRecord) -> RoundView:
    counts = await party.ledger.counts(record.round_id)
    return RoundView(
        number=record.number,
        kind=record.kind,
        state=record.state.value,
        model_version=record.model_version,
        next_version=record.next_version,
        opened_at=record.opened_at,
        sealing_at=record.sealing_at,
        sealed_at=record.sealed_at,
        shared_at=record.shared_at,
        reconstructed_at=record.reconstructed_at,
        ended_at=record.ended_at,
        join_until=record.join_until,
        upload_until=record.upload_until,
        waiting=waits_for_devices(record, counts, least=party.task.min_cohort, now=party.clock()),
        admitted=counts.admitted,
        keys=counts.keys,
        updates=counts.updates,
        counted=len(record.sealed_sessions) if record.sealed_sessions is not None else None,
        list_digest=record.list_digest.hex() if record.list_digest else None,
        share_digest=record.share_digest.hex() if record.share_digest else None,
        reason=record.reason,
    )


async def _stream(party: Party, after: int, request: Request, tell: Tell) -> AsyncIterator[str]:
    """Yield events for a limited time; clients reconnect with Last-Event-ID, so a stopping server need not wait."""
    yield "retry: 500\n\n"
    end = time.monotonic() + STREAM_SECONDS
    while time.monotonic() < end and not await request.is_disconnected():
        found = await party.ledger.events(after_id=after, limit=_PAGE, task=party.task.task_id)
        for event in found:
            after = event.event_id
            if (data := tell(event)) is not None:
                yield f"id: {after}\nevent: {event.kind}\ndata: {data}\n\n"
        if not found:
            await asyncio.sleep(POLL_SECONDS)
