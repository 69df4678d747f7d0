"""A small app for tests: routes that fail in every way, and what can be seen of it from outside."""

import io
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, FastAPI, Header, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from secemb_party.errors import BusyError, LedgerUnavailableError, RoundClosedError, UnauthorizedError
from secemb_party.http.app import new_app
from secemb_party.http.health import metrics_router
from secemb_party.http.problems import problem_responses
from secemb_party.metrics import Metrics
from secemb_party.service import Check
from secemb_shared.errors import SecEmbError

SECRET = "9f86d081884c7d659a2feaa0c55ad015"
ERRORS: dict[str, Exception] = {
    "closed": RoundClosedError("the round no longer accepts this; join the next one"),
    "busy": BusyError(3),
    "unauthorized": UnauthorizedError("send a valid token as Authorization: Bearer"),
    "ledger": LedgerUnavailableError(SECRET),
    "ours": SecEmbError(SECRET),
    "theirs": ValueError(SECRET),
    "teapot": HTTPException(418, SECRET),
    "gateway": HTTPException(502, SECRET),
    "down": HTTPException(503, SECRET),
}


class Thing(BaseModel):
    """A JSON body."""

    number: int


def routes() -> APIRouter:
    router = APIRouter(prefix="/v1/things")

    @router.get("/{thing}/errors/{name}", responses=problem_responses(RoundClosedError, BusyError))
    async def error(thing: str, name: str) -> None:
        raise ERRORS[name]

    @router.put("/{thing}")
    async def put(thing: str, body: Thing, ticket: Annotated[str, Header(max_length=8)] = "") -> Thing:
        return body

    @router.get("/{thing}/cached")
    async def cached(thing: str) -> Response:
        return Response(b"x" * 5, headers={"Cache-Control": "max-age=60"})

    @router.get("/{thing}/cut")
    async def cut(thing: str) -> Response:
        async def half() -> AsyncIterator[bytes]:
            yield b"half"
            raise ValueError(SECRET)

        return StreamingResponse(half())

    return router


CHECKS = [Check("ledger", True, "start the database"), Check("peer", True, "start server 1")]


class SmallApp:
    """An app, its metrics, its log and what it finds when it checks itself."""

    def __init__(self, log: io.StringIO) -> None:
        self.log = log
        self.metrics = Metrics()
        self.checks: Sequence[Check] | Exception = CHECKS
        self.app: FastAPI = new_app(
            "Test",
            "An app for tests.",
            metrics=self.metrics,
            routers=[routes(), metrics_router(self.metrics)],
            ready=self.ready,
        )

    async def ready(self) -> Sequence[Check]:
        if isinstance(self.checks, Exception):
            raise self.checks
        return self.checks

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test") as client:
            return await client.request(method, path, **more)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]
