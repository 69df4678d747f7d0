"""What a device may ask either server: the task, the dense part, and to take its keys and its update.

A route decodes, calls and encodes. Bodies are read by hand: their length is known before they come.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel

from secemb_party.errors import SessionConflictError, UnknownRoundError, UnknownTaskError, UnknownVersionError
from secemb_party.http.bodies import BINARY, MediaTypeError, SlowBodyError, read_exactly
from secemb_party.http.problems import problem_responses
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.models.model import little_endian
from secemb_party.party import Party
from secemb_party.tickets import TicketError
from secemb_party.workers import BusyError
from secemb_shared.errors import LengthError

TaskHex = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
RoundHex = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
SessionHex = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Ticket = Annotated[str, Header(alias="secemb-ticket", max_length=128)]
Notify = Callable[[], None]


def _binary(description: str) -> dict[str, Any]:
    return {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}, "description": description}


_DENSE = {200: _binary("float32 numbers"), **problem_responses(UnknownTaskError, LedgerUnavailableError)}
_REFUSED = problem_responses(
    LengthError,
    TicketError,
    UnknownRoundError,
    SlowBodyError,
    SessionConflictError,
    MediaTypeError,
    BusyError,
    LedgerUnavailableError,
)
_ANSWER = {200: _binary("ANSWER: this server's share of the rows"), **_REFUSED}


class TaskView(BaseModel):
    """A task as a server announces it; the device compares both servers' words."""

    task: str  # canonical form
    round: str | None  # canonical form of the current round
    model_version: int
    model_digest: str


class Receipt(BaseModel):
    """What is durable now."""

    sha256: str


def _takes_binary() -> dict[str, Any]:
    return {"requestBody": {"required": True, **_binary("a message of docs/protocol.md, section 13")}}


def device_routes(party: Party, *, body_seconds: float, completed: Notify) -> APIRouter:
    """Return the routes that both servers offer to devices."""
    router = APIRouter(prefix="/v1", tags=["devices"])

    def reader(request: Request) -> Callable[[int], Awaitable[bytes]]:
        return lambda length: read_exactly(request, length, body_seconds)

    @router.get("/tasks/{task}", responses=problem_responses(UnknownTaskError, LedgerUnavailableError))
    async def task(task: TaskHex) -> TaskView:
        """Return the task's public configuration, the current round and the published model."""
        return await view_task(party, task)

    @router.get("/tasks/{task}/dense/{version}", response_class=Response, responses=_DENSE)
    async def dense(task: TaskHex, version: Annotated[int, Path(ge=0, lt=2**53)]) -> Response:
        """Return the dense parameters of a published version, little-endian float32."""
        check_task(party, task)
        published = await party.ledger.published_version(party.task.task_id)
        if published is None or version > published.version or version not in party.models.versions():
            raise UnknownVersionError("this version is not published, or no longer kept; ask for the task again")
        model = await party.workers.run(lambda: party.models.load(version))
        headers = {"secemb-model-digest": model.digest.hex(), "cache-control": "public, immutable, max-age=86400"}
        return Response(bytes(little_endian(model.dense)), media_type=BINARY, headers=headers)

    @router.put(
        "/rounds/{round}/sessions/{session}/keys",
        response_class=Response,
        responses=_ANSWER,
        openapi_extra=_takes_binary(),
    )
    async def keys(round: RoundHex, session: SessionHex, ticket: Ticket, request: Request) -> Response:
        """Take a session's KEYS and return its ANSWER; the same bytes may come again, others get 409."""
        round_id, session_id = bytes.fromhex(round), bytes.fromhex(session)
        return Response(await party.keys(round_id, session_id, ticket, reader(request)), media_type=BINARY)

    @router.put("/rounds/{round}/sessions/{session}/update", responses=_REFUSED, openapi_extra=_takes_binary())
    async def update(round: RoundHex, session: SessionHex, ticket: Ticket, request: Request) -> Receipt:
        """Take a session's UPDATE or SUM_SHARE and return a receipt once it is durable."""
        round_id, session_id = bytes.fromhex(round), bytes.fromhex(session)
        digest = await party.update(round_id, session_id, ticket, reader(request))
        completed()
        return Receipt(sha256=digest.hex())

    return router


def check_task(party: Party, task: str) -> None:
    """Refuse any task but the one that is served here."""
    if bytes.fromhex(task) != party.task.task_id:
        raise UnknownTaskError("this server does not serve that task")


async def view_task(party: Party, task: str) -> TaskView:
    """Return what this server says about its task."""
    check_task(party, task)
    published = await party.ledger.published_version(party.task.task_id)
    if published is None:
        raise UnknownVersionError("no model is published yet; come back later")
    current = await party.ledger.current_round(party.task.task_id)
    return TaskView(
        task=party.task.encode().decode(),
        round=current.spec.decode() if current is not None else None,
        model_version=published.version,
        model_digest=published.digest.hex(),
    )
