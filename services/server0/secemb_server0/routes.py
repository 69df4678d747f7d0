"""What devices may ask server 0 alone."""

from base64 import urlsafe_b64encode
from typing import Annotated

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from secemb_party.errors import (
    PeerRefusedError,
    PeerUnavailableError,
    SessionConflictError,
    UnauthorizedError,
    UnknownTaskError,
)
from secemb_party.http.bodies import RequestInvalidError, SlowBodyError, small_body_route
from secemb_party.http.devices import TaskHex, check_task
from secemb_party.http.problems import problem_responses
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.party import Party
from secemb_server0.announced_key import AnnouncedKey
from secemb_server0.joining import Door, NotNow
from secemb_shared.errors import LengthError

Token = Annotated[str | None, Header(max_length=300)]


class JoinRequest(BaseModel):
    """A device's wish to take part or to read, with the session id that it has drawn."""

    model_config = ConfigDict(extra="forbid")

    session: str = Field(pattern=r"^[0-9a-f]{32}$")


class JoinAnswer(BaseModel):
    """The round to take part in and the ticket for it; empty with status 202, when there is none now."""

    round: str | None = None
    ticket: str | None = None
    upload_until: float | None = None
    relay: str | None = None  # server 1's relay key, signed, in base64url; where the task is relayed


class ReadAnswer(BaseModel):
    """The round to read in and the ticket for it; empty with status 202, before the first round."""

    round: str | None = None
    ticket: str | None = None
    read_until: float | None = None


def join_routes(party: Party, door: Door, *, body_seconds: float, relay_key: AnnouncedKey | None = None) -> APIRouter:
    """Return the routes by which devices get tickets."""
    router = APIRouter(prefix="/v1", tags=["devices"], route_class=small_body_route(body_seconds))
    anybody = (RequestInvalidError, LengthError, SlowBodyError, UnauthorizedError, UnknownTaskError)
    refusals = problem_responses(*anybody, SessionConflictError, LedgerUnavailableError)
    refusals[202] = {"model": JoinAnswer, "description": "nobody can join now; see Retry-After"}

    @router.post("/tasks/{task}/join", responses=refusals)
    async def join(task: TaskHex, wish: JoinRequest, response: Response, authorization: Token = None) -> JoinAnswer:
        """Return a ticket for this session, or 202 with Retry-After."""
        check_task(party, task)
        outcome = await door.join(_bare(authorization), bytes.fromhex(wish.session))
        if isinstance(outcome, NotNow):
            response.status_code = 202
            response.headers["retry-after"] = str(outcome.seconds)
            return JoinAnswer()
        relay = await _shown(relay_key) if relay_key is not None else None
        return JoinAnswer(round=outcome.round, ticket=outcome.ticket, upload_until=outcome.upload_until, relay=relay)

    unread = problem_responses(*anybody, LedgerUnavailableError)
    unread[202] = {"model": ReadAnswer, "description": "there was no round yet; see Retry-After"}

    @router.post("/tasks/{task}/read", responses=unread)
    async def read(task: TaskHex, wish: JoinRequest, response: Response, authorization: Token = None) -> ReadAnswer:
        """Return a ticket to read rows in this session, or 202 with Retry-After."""
        check_task(party, task)
        outcome = await door.read(_bare(authorization), bytes.fromhex(wish.session))
        if isinstance(outcome, NotNow):
            response.status_code = 202
            response.headers["retry-after"] = str(outcome.seconds)
            return ReadAnswer()
        return ReadAnswer(round=outcome.round, ticket=outcome.ticket, read_until=outcome.read_until)

    return router


async def _shown(key: AnnouncedKey) -> str | None:
    """Return the announcement as text, or nothing while server 1 is away: the device can ask for it later."""
    try:
        return urlsafe_b64encode(await key.get()).decode("ascii")
    except (PeerUnavailableError, PeerRefusedError):
        return None


def _bare(authorization: str | None) -> str | None:
    return authorization.removeprefix("Bearer ") if authorization else None
