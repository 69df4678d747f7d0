"""Liveness, readiness and metrics of a server.

Anyone may learn that a server is alive. What it is waiting for and its metrics are for its operator only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Generic, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from secemb_party.logs import get_logger
from secemb_party.metrics import CONTENT_TYPE, Metrics
from secemb_party.service import Check

Readiness = Callable[[], Awaitable[Sequence[Check]]]
Value = TypeVar("Value")

FRESH_SECONDS = 1.0  # anyone who can reach these routes may call them at any rate


class Fresh(Generic[Value]):
    """A result that is computed at most once a second, however often it is requested."""

    def __init__(self, find: Callable[[], Awaitable[Value]], clock: Callable[[], float] = monotonic) -> None:
        self._find, self._clock = find, clock
        self._found: tuple[float, Value] | None = None
        self._finding = asyncio.Lock()

    async def get(self) -> Value:
        """Return the result, which is at most a second old."""
        async with self._finding:
            now = self._clock()
            if self._found is None or now - self._found[0] >= FRESH_SECONDS:
                self._found = now, await self._find()
            return self._found[1]


class Health(BaseModel):
    """The server is running."""

    alive: bool


class CheckResult(BaseModel):
    """A check, its result and, if it failed, what to do."""

    check: str
    ok: bool
    hint: str


class Ready(BaseModel):
    """Whether the server is ready, and the result of each check."""

    ready: bool
    checks: list[CheckResult]


def health_router(ready: Readiness | None) -> APIRouter:
    """Return `/healthz` and, for a listener that has a `ready`, `/readyz`."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Liveness check")
    async def health() -> Health:
        return Health(alive=True)

    if ready is None:
        return router

    async def find() -> Ready:
        return _summarise(await _run(ready))

    fresh = Fresh(find)

    @router.get(
        "/readyz",
        summary="Readiness check: what is wrong, if anything, and how to fix it",
        response_model=Ready,
        responses={503: {"model": Ready, "description": "Not ready."}},
    )
    async def readiness() -> Response:
        answer = await fresh.get()
        return JSONResponse(answer.model_dump(), 200 if answer.ready else 503)

    return router


def metrics_router(metrics: Metrics) -> APIRouter:
    """Return `/metrics`."""
    router = APIRouter(tags=["health"])

    async def render() -> bytes:
        return metrics.render()

    fresh = Fresh(render)

    @router.get(
        "/metrics",
        summary="Measurements for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def measurements() -> Response:
        return Response(await fresh.get(), headers={"Content-Type": CONTENT_TYPE})

    return router


async def _run(ready: Readiness) -> Sequence[Check]:
    try:
        return await ready()
    except Exception:
        get_logger().exception("the readiness check failed")
        return [Check("readiness", False, "the readiness check itself failed; see the log")]


def _summarise(checks: Sequence[Check]) -> Ready:
    # A hint says what to do, so a check that passed has none.
    results = [CheckResult(check=c.check, ok=c.ok, hint="" if c.ok else c.hint) for c in checks]
    return Ready(ready=all(c.ok or not c.blocks for c in checks), checks=results)
