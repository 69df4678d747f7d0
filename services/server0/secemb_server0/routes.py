"""What devices may ask server 0 alone: a ticket to take part in a round, or to read."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from secemb_party.errors import (
    PeerRefusedError,
    PeerUnavailableError,
    SessionConflictError,
    UnauthorizedError,
    UnknownTaskError,
)
from secemb_party.http.by_hand import HandRequest, HandRoute, describe_parameter
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import (
    JSON,
    RequestInvalidError,
    SlowBodyError,
    describe_json,
    media_type,
    parse_message,
    read_small,
)
from secemb_party.http.task_routes import check_task
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.service import Party
from secemb_server0.join import AnnouncedKey, Door, NotNow
from secemb_shared.errors import LengthError, SecEmbError

Ask = Callable[[str | None, bytes], Awaitable[BaseModel | NotNow]]

_LONGEST_TOKEN = 300
_TASK = re.compile(r"[0-9a-f]{64}")


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


def join_routes(
    party: Party, door: Door, *, body_seconds: float, relay_key: AnnouncedKey | None = None
) -> list[HandRoute]:
    """Return the routes by which devices get tickets."""

    async def join(token: str | None, session_id: bytes) -> JoinAnswer | NotNow:
        outcome = await door.join(token, session_id)
        if isinstance(outcome, NotNow):
            return outcome
        relay = await _shown(relay_key) if relay_key is not None else None
        return JoinAnswer(round=outcome.round, ticket=outcome.ticket, upload_until=outcome.upload_until, relay=relay)

    async def read(token: str | None, session_id: bytes) -> ReadAnswer | NotNow:
        outcome = await door.read(token, session_id)
        if isinstance(outcome, NotNow):
            return outcome
        return ReadAnswer(round=outcome.round, ticket=outcome.ticket, read_until=outcome.read_until)

    def route(ask: Ask, path: str, empty: BaseModel, operation: dict[str, Any]) -> HandRoute:
        serve = _serve(party, ask, empty.model_dump_json().encode(), body_seconds)
        return HandRoute(method="POST", path_format=path, serve=serve, operation=operation)

    return [
        route(join, "/v1/tasks/{task}/join", JoinAnswer(), _JOIN),
        route(read, "/v1/tasks/{task}/read", ReadAnswer(), _READ),
    ]


def _serve(party: Party, ask: Ask, empty: bytes, body_seconds: float) -> Callable[..., Awaitable[Response]]:
    async def serve(request: HandRequest, task: str) -> Response:
        body = await read_small(request, body_seconds)
        token, session_id = _wish(request, body, task)
        check_task(party, task)
        outcome = await ask(token, session_id)
        if isinstance(outcome, NotNow):
            return Response(empty, 202, {"retry-after": str(outcome.seconds)}, JSON)
        return Response(outcome.model_dump_json(), media_type=JSON)

    return serve


def _wish(request: HandRequest, body: bytes, task: str) -> tuple[str | None, bytes]:
    """Return the enrolment token and the session id of a request that is as it should be."""
    token = request.headers.get("authorization")
    fits = _TASK.fullmatch(task) and len(token or "") <= _LONGEST_TOKEN
    if not fits or media_type(request) != JSON:
        raise RequestInvalidError("a path or header is not what the interface describes")
    session = parse_message(JoinRequest, body).session
    return (token.removeprefix("Bearer ") if token else None), bytes.fromhex(session)


async def _shown(key: AnnouncedKey) -> str | None:
    """Return the announcement as text, or nothing while server 1 is away: the device can ask for it later."""
    try:
        return urlsafe_b64encode(await key.get()).decode("ascii")
    except (PeerUnavailableError, PeerRefusedError):
        return None


def _describe(
    name: str, answer: type[BaseModel], *refusals: type[SecEmbError], now: str, not_now: str
) -> dict[str, Any]:
    """Return the OpenAPI operation of a route."""
    content = describe_json(answer)
    retry = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}}
    return {
        "tags": ["devices"],
        "summary": name.capitalize(),
        "description": f"Return a ticket {now}, or 202 with Retry-After.",
        "operationId": f"post_{name}",
        "parameters": [
            describe_parameter("task", "path", {"type": "string", "pattern": f"^{_TASK.pattern}$"}),
            describe_parameter(
                "authorization", "header", {"type": "string", "maxLength": _LONGEST_TOKEN}, required=False
            ),
        ],
        "requestBody": {"required": True, **describe_json(JoinRequest)},
        "responses": {
            200: {"description": "the ticket", **content},
            202: {"description": not_now, "headers": retry, **content},
            **problem_responses(
                RequestInvalidError,
                LengthError,
                SlowBodyError,
                UnauthorizedError,
                UnknownTaskError,
                LedgerUnavailableError,
                *refusals,
            ),
        },
    }


_JOIN = _describe(
    "join", JoinAnswer, SessionConflictError, now="for this session", not_now="nobody can join now; see Retry-After"
)
_READ = _describe(
    "read", ReadAnswer, now="to read rows in this session", not_now="there was no round yet; see Retry-After"
)
