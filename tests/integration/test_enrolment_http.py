"""The enrolment API over HTTP with a ledger in each database: calls at the same time, and a database that is away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from tests.integration.databases import NOW

from secemb_party.http.app import new_app
from secemb_party.http.request_body import Patience
from secemb_party.ledger import Ledger
from secemb_party.metrics import Metrics
from secemb_party.operators import Operator, OperatorRole, Operators, encode, hash_of
from secemb_party.service import Party
from secemb_server0.enrolment_routes import enrolment_routes

TOKENS = "/v1/operator/tokens"

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def backend(ledger: Ledger, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    file = tmp_path / "operators.json"
    operator = Operator(name="backend", role=OperatorRole.ENROL, token_hash=hash_of("b"), created_at=NOW)
    file.write_bytes(encode([operator]))
    party = cast(Party, SimpleNamespace(ledger=ledger, clock=lambda: NOW))  # all that these routes use of one
    router = enrolment_routes(party, Operators(file), patience=Patience())
    app = new_app("enrolment", "", metrics=Metrics(), routers=[router])
    headers = {"authorization": "Bearer b"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server0", headers=headers) as client:
        yield client


async def post(backend: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    answer = await backend.post(TOKENS + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_same_call_at_the_same_time_creates_one_token(backend: httpx.AsyncClient) -> None:
    body = {"devices": [{"name": "phone"}, {"name": "tablet"}]}
    answers = await asyncio.gather(*(post(backend, "", body) for _ in range(8)))
    shown = [one for answer in answers for one in answer if one["token"] is not None]
    assert sorted(one["name"] for one in shown) == ["phone", "tablet"]
    assert {one["outcome"] for answer in answers for one in answer} == {"created", "exists"}
    assert len(await post(backend, "/list", {})) == 2


async def test_a_thousand_devices_are_enrolled_replaced_and_revoked(backend: httpx.AsyncClient, ledger: Ledger) -> None:
    names = [f"phone {number:04}" for number in range(1000)]
    made = await post(backend, "", {"devices": [{"name": name} for name in names], "valid_seconds": 60})
    assert len({one["token"] for one in made}) == 1000
    await asyncio.gather(*(post(backend, "/replace", {"name": name}) for name in names[:20]))
    assert await post(backend, "/revoke", {"names": names[10:]}) == {"revoked": 990}
    listed = await post(backend, "/list", {"names": names})
    assert len(listed) == 1020
    assert {one["name"] for one in listed if one["state"] == "active"} == set(names[:10])
    assert [one.data["tokens"] for one in await ledger.actions()] == [990, *([1] * 20), 1000]


async def test_a_database_that_is_away_is_said_so_and_the_call_can_be_repeated(
    backend: httpx.AsyncClient, ledger: Ledger
) -> None:
    await ledger.close()
    answer = await backend.post(TOKENS, json={"devices": [{"name": "phone"}]})
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:secemb:problem:unavailable")
    assert int(answer.headers["retry-after"]) >= 1
