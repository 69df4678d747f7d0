"""The enrolment API, as an app's backend uses it: safe to repeat, closed to other roles, and without a secret in it."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.unit.operator_desk import ENROL, READ_ONLY, TOKEN, Desk, a_desk

from secemb_party.ledger import TokenState

pytestmark = pytest.mark.asyncio

TOKENS = "/v1/operator/tokens"
DIGITS = hashlib.sha256(b"drawn by the backend").hexdigest()


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


@pytest_asyncio.fixture
async def backend(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    async with desk.browser(0) as client:
        client.headers["authorization"] = f"Bearer {ENROL}"
        yield client


async def created(backend: httpx.AsyncClient, *devices: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answer = await backend.post(TOKENS, json={"devices": devices, **more})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def test_a_created_token_is_shown_once_and_opens_the_door(desk: Desk, backend: httpx.AsyncClient) -> None:
    (made,) = await created(backend, {"name": "user 4711"})
    assert (made["name"], made["outcome"], len(made["token"])) == ("user 4711", "created", 43)
    stored = await desk.pair.parties[0].ledger.token(hashlib.sha256(made["token"].encode()).digest())
    assert stored is not None
    assert stored.state(desk.pair.clock.now) is TokenState.ACTIVE
    admin = {"authorization": f"Bearer {TOKEN}"}
    listed = await backend.post(f"{TOKENS}/list", json={}, headers=admin)
    for answer in (listed, await backend.get("/v1/operator/actions", headers=admin)):
        assert answer.status_code == 200
        assert made["token"] not in answer.text
        assert stored.token_hash.hex() not in answer.text


async def test_a_repeated_call_creates_nothing_twice(desk: Desk, backend: httpx.AsyncClient) -> None:
    devices = ({"name": "drawn here"}, {"name": "drawn there", "sha256": DIGITS})
    first, again = await created(backend, *devices), await created(backend, *devices)
    assert [one["outcome"] for one in first] == ["created", "created"]
    assert [(one["outcome"], one["token"]) for one in again] == [("exists", None), ("unchanged", None)]
    assert len(await desk.pair.parties[0].ledger.tokens(limit=10)) == 2
    (taken,) = await created(backend, {"name": "someone else", "sha256": DIGITS})
    assert (taken["outcome"], taken["token"]) == ("taken", None)


async def test_what_was_done_is_recorded_with_the_backends_name_and_no_devices(
    desk: Desk, backend: httpx.AsyncClient
) -> None:
    await created(backend, {"name": "user 4711"}, {"name": "user 4712"})
    await backend.post(f"{TOKENS}/revoke", params={"reason": "asked to"}, json={"names": ["user 4711", "unknown"]})
    revoked, made = await desk.pair.parties[0].ledger.actions()
    assert (made.by, made.what, made.reason, made.data) == ("backend", "token create", None, {"tokens": 2})
    assert (revoked.by, revoked.what, revoked.reason, revoked.data) == (
        *("backend", "token revoke", "asked to"),
        {"tokens": 1},
    )


async def test_states_are_listed_by_name_and_page_by_page(desk: Desk, backend: httpx.AsyncClient) -> None:
    await created(backend, {"name": "a"}, {"name": "b"}, valid_seconds=10)
    await created(backend, {"name": "c"})
    answer = await backend.post(f"{TOKENS}/revoke", json={"names": ["b"]})
    assert answer.json() == {"revoked": 1}
    desk.pair.clock.now += 10
    listed = (await backend.post(f"{TOKENS}/list", json={})).json()
    assert [(one["name"], one["state"]) for one in listed] == [("a", "expired"), ("b", "revoked"), ("c", "active")]
    some = await backend.post(f"{TOKENS}/list", json={"names": ["c", "nobody"]})
    assert [one["name"] for one in some.json()] == ["c"]
    page = {"after_name": "a", "after_generation": 0, "limit": 1}
    assert [one["name"] for one in (await backend.post(f"{TOKENS}/list", json=page)).json()] == ["b"]


async def test_a_device_gets_its_next_token_with_an_overlap(desk: Desk, backend: httpx.AsyncClient) -> None:
    await created(backend, {"name": "phone"})
    asked = {"name": "phone", "sha256": DIGITS, "overlap_seconds": 60, "valid_seconds": 600}
    outcomes = [(await backend.post(f"{TOKENS}/replace", json=asked)).json()["outcome"] for _ in range(2)]
    assert outcomes == ["created", "unchanged"]
    now = desk.pair.clock.now
    old, new = (await backend.post(f"{TOKENS}/list", json={"names": ["phone"]})).json()
    assert (old["expires_at"], new["expires_at"], new["generation"]) == (now + 60, now + 600, 1)
    unknown = await backend.post(f"{TOKENS}/replace", json={"name": "nobody"})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:secemb:problem:device-unknown")
    await backend.post(f"{TOKENS}/revoke", json={"names": ["phone"]})
    refused = await backend.post(f"{TOKENS}/replace", json={"name": "phone"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:secemb:problem:token-conflict")
    assert "under another name" in refused.json()["detail"]


async def test_devices_are_suspended_and_resumed_with_their_counts_in_the_list(
    desk: Desk, backend: httpx.AsyncClient
) -> None:
    await created(backend, {"name": "a"}, {"name": "b"})
    names = {"names": ["a", "nobody"]}
    assert [(await backend.post(f"{TOKENS}/suspend", json=names)).json() for _ in range(2)] == [
        {"suspended": 1},
        {"suspended": 0},
    ]
    first, second = (await backend.post(f"{TOKENS}/list", json={})).json()
    assert (first["state"], first["suspended_at"]) == ("suspended", desk.pair.clock.now)
    assert (second["state"], second["suspended_at"]) == ("active", None)
    assert [first[name] for name in ("joined", "completed", "refused", "rejected", "problem")] == [0, 0, 0, 0, None]
    assert len(first["hash"]) == 16
    assert (await backend.post(f"{TOKENS}/resume", json=names)).json() == {"resumed": 1}
    assert (await backend.post(f"{TOKENS}/list", json={})).json()[0]["state"] == "active"


@pytest.mark.parametrize("path", ["", "/list", "/replace", "/revoke", "/suspend", "/resume"])
async def test_other_roles_are_refused_before_the_body_is_read(desk: Desk, path: str) -> None:
    async with desk.browser(0) as browser, desk.browser(1) as other:
        for token, status in ((READ_ONLY, 403), ("x", 401)):
            headers = {"authorization": f"Bearer {token}"}
            answer = await browser.post(TOKENS + path, content=b"no json at all", headers=headers)
            assert answer.status_code == status
        answer = await other.post(TOKENS + path, json={}, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 404  # devices enrol at server 0


@pytest.mark.parametrize(
    "body",
    [
        {"devices": []},
        {"devices": [{"name": ""}]},
        {"devices": [{"name": "x" * 101}]},
        {"devices": [{"name": "two\nlines"}]},
        {"devices": [{"name": " around "}]},
        {"devices": [{"name": "x", "sha256": DIGITS.upper()}]},
        {"devices": [{"name": "x", "token": "a secret in the wrong place"}]},
        {"devices": [{"name": "x"}], "valid_seconds": -1},
        {"devices": [{"name": f"phone {number}"} for number in range(1001)]},
    ],
)
async def test_a_body_that_is_not_right_changes_nothing(
    desk: Desk, backend: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    answer = await backend.post(TOKENS, json=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:secemb:problem:request-invalid")
    assert "secret" not in answer.text
    assert await desk.pair.parties[0].ledger.tokens(limit=10) == []


async def test_a_body_that_is_too_long_or_not_json_is_refused(backend: httpx.AsyncClient) -> None:
    json = {"content-type": "application/json"}
    assert (await backend.post(TOKENS, content=b" " * (1 << 21), headers=json)).status_code == 400
    assert (await backend.post(TOKENS, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415


async def test_the_description_of_the_bodies_refers_to_nothing_that_is_not_there(desk: Desk) -> None:
    paths = desk.apps[0].openapi()["paths"]
    for path in ("", "/list", "/replace", "/revoke"):
        body = paths[TOKENS + path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "$ref" not in str(body)
    devices = paths[TOKENS]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["devices"]
    assert devices["items"]["properties"]["name"]["maxLength"] == 100
