"""Routes of devices: ids in the path are checked, a dependency is never skipped, and OpenAPI describes them."""

import httpx
import pytest
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from secemb_party.errors import UnauthorizedError
from secemb_party.http.app import new_app
from secemb_party.http.requests import DeviceRoute, TaskHex
from secemb_party.metrics import Metrics

pytestmark = pytest.mark.asyncio
TASK = "ab" * 32


def refuse() -> None:
    raise UnauthorizedError("nobody comes in here")


def caller() -> httpx.AsyncClient:
    router = APIRouter(prefix="/v1/tasks/{task}", route_class=DeviceRoute)

    @router.post("/open")
    async def open(task: TaskHex, request: Request) -> Response:
        return Response(task.encode() + await request.body())

    @router.post("/closed", dependencies=[Depends(refuse)])
    async def closed(task: TaskHex, request: Request) -> Response:
        return Response(b"inside")

    app = new_app("Test", "An app.", metrics=Metrics(), routers=[router])
    assert {"/v1/tasks/{task}/open", "/v1/tasks/{task}/closed", "/healthz"} <= app.openapi()["paths"].keys()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


async def test_the_endpoint_gets_the_ids_and_the_request() -> None:
    async with caller() as client:
        answer = await client.post(f"/v1/tasks/{TASK}/open", content=b" body")
        assert (answer.status_code, answer.text) == (200, f"{TASK} body")
        assert (await client.get(f"/v1/tasks/{TASK}/open")).status_code == 405


@pytest.mark.parametrize("task", [TASK[:-1], TASK + "a", TASK.upper(), "g" * 64, TASK[:-1] + "%0a"])
async def test_an_id_that_is_none_is_refused(task: str) -> None:
    async with caller() as client:
        answer = await client.post(f"/v1/tasks/{task}/open")
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:secemb:problem:request-invalid")


async def test_a_dependency_is_not_skipped() -> None:
    async with caller() as client:
        assert (await client.post(f"/v1/tasks/{TASK}/closed")).status_code == 401
