"""What devices may ask server 0 alone."""

from typing import Annotated

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from secemb_party.errors import SessionConflictError, UnauthorizedError, UnknownTaskError
from secemb_party.http.devices import TaskHex, check_task
from secemb_party.http.problems import problem_responses
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.party import Party
from secemb_server0.joining import Door, NotNow


class JoinRequest(BaseModel):
    """A device's wish to take part, with the session id that it has drawn."""

    model_config = ConfigDict(extra="forbid")

    session: str = Field(pattern=r"^[0-9a-f]{32}$")


class JoinAnswer(BaseModel):
    """The round to take part in and the ticket for it; empty with status 202, when there is none now."""

    round: str | None = None
    ticket: str | None = None
    upload_until: float | None = None


def join_routes(party: Party, door: Door) -> APIRouter:
    """Return the route by which devices join."""
    router = APIRouter(prefix="/v1", tags=["devices"])
    refusals = problem_responses(UnauthorizedError, UnknownTaskError, SessionConflictError, LedgerUnavailableError)
    refusals[202] = {"model": JoinAnswer, "description": "nobody can join now; see Retry-After"}

    @router.post("/tasks/{task}/join", responses=refusals)
    async def join(
        task: TaskHex,
        wish: JoinRequest,
        response: Response,
        authorization: Annotated[str | None, Header(max_length=300)] = None,
    ) -> JoinAnswer:
        """Return a ticket for this session, or 202 with Retry-After."""
        check_task(party, task)
        token = authorization.removeprefix("Bearer ") if authorization else None
        outcome = await door.join(token, bytes.fromhex(wish.session))
        if isinstance(outcome, NotNow):
            response.status_code = 202
            response.headers["retry-after"] = str(outcome.seconds)
            return JoinAnswer()
        return JoinAnswer(round=outcome.round, ticket=outcome.ticket, upload_until=outcome.upload_until)

    return router
