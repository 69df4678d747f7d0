"""The key that devices seal to when they talk to server 0 alone, as either server shows it."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Response

from secemb_party.errors import PeerUnavailableError, RelayUnavailableError, UnknownTaskError
from secemb_party.http.bodies import BINARY, describe_binary
from secemb_party.http.devices import TaskHex, check_task
from secemb_party.http.problems import problem_responses
from secemb_party.party import Party

Announcement = Callable[[], Awaitable[bytes]]
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: describe_binary("server 1's relay key, signed: docs/protocol.md, section 13.5"),
    **problem_responses(UnknownTaskError, RelayUnavailableError, PeerUnavailableError),
}


def relay_routes(party: Party, announcement: Announcement | None) -> APIRouter:
    """Return the route by which devices learn server 1's relay key."""
    router = APIRouter(prefix="/v1", tags=["devices"])

    @router.get("/tasks/{task}/relay", response_class=Response, responses=_ANSWER)
    async def relay(task: TaskHex) -> Response:
        """Return the announcement of server 1's relay key; its signature is checked with the task's relay_key."""
        check_task(party, task)
        if announcement is None:
            raise RelayUnavailableError("this task is not relayed; talk to both servers")
        return Response(await announcement(), media_type=BINARY)

    return router
