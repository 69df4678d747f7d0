"""The operator's page as a browser's requests see it: who gets in, with which headers, and what is refused."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from safetensors.numpy import load
from tests.devices.scripted import a_device
from tests.unit.operator_desk import TOKEN, Desk, a_desk, form_token

from secemb_party.ui.login_sessions import WRONG_TRIES
from secemb_party.ui.render import PAGES, POLICY
from secemb_server0.conductor import RollBack

pytestmark = pytest.mark.asyncio

ADDRESSES = [address for _, address in PAGES]
PARTS = ["/ui/live", "/ui/capacity/now", "/ui/model/versions", "/ui/events", "/ui/model/0/export", "/ui/rounds/0"]


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


@pytest.mark.parametrize("role", [0, 1])
async def test_nothing_is_shown_to_whom_nobody_knows(desk: Desk, role: int) -> None:
    async with desk.browser(role) as browser:
        for path in (*ADDRESSES, *PARTS):
            answer = await browser.get(path)
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/ui/login"), path
            assert not answer.content
            part = await browser.get(path, headers={"hx-request": "true"})
            assert (part.status_code, part.headers["hx-redirect"]) == (204, "/ui/login?over=1")
        for path in ("/ui/logout", "/ui/model/0/rollback"):
            assert (await browser.post(path, data={"form_token": "x"})).status_code == 303
        stream = await browser.get("/ui/events", headers={"accept": "text/event-stream"})
        assert stream.status_code == 204


@pytest.mark.parametrize("role", [0, 1])
async def test_every_page_and_part_comes_with_a_strict_policy(desk: Desk, role: int) -> None:
    async with desk.logged_in(role) as browser:
        for path in (*ADDRESSES, *PARTS, "/ui/login", "/ui/nowhere"):
            if path in ("/ui/events", "/ui/model/0/export"):
                continue
            answer = await browser.get(path)
            assert answer.headers["content-type"] == "text/html; charset=utf-8", path
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["cache-control"] == "no-store"
            for header, value in (("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin")):
                assert answer.headers[header] == value
            assert not re.search(r"<style|<script(?! src)|\sstyle=|\son\w+=", answer.text), path
            assert "None" not in answer.text, path


async def test_the_cookie_is_strict_and_secure_where_the_page_is(desk: Desk) -> None:
    async with desk.browser(0) as browser:
        plain = (await browser.post("/ui/login", data={"token": TOKEN})).headers["set-cookie"].lower()
        behind = await browser.post("/ui/login", data={"token": TOKEN}, headers={"origin": "https://example.org"})
    for words in ("httponly", "samesite=strict", "path=/ui", "max-age=28800"):
        assert words in plain
    assert "secure" not in plain
    assert "secure" in behind.headers["set-cookie"].lower()


async def test_wrong_tokens_are_refused_and_soon_must_wait_but_never_the_right_one(desk: Desk) -> None:
    async with desk.browser(0) as browser:
        for tried in range(WRONG_TRIES + 1):
            answer = await browser.post("/ui/login", data={"token": "wrong"})
            assert answer.status_code == (401 if tried < WRONG_TRIES else 429)
            assert "set-cookie" not in answer.headers
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert (await browser.post("/ui/login", data={"token": TOKEN})).status_code == 303
        assert (await browser.get("/ui")).status_code == 200
        assert (await browser.post("/ui/login", data={"token": "wrong"})).status_code == 429


async def test_the_token_opens_one_servers_page_in_one_session_only(desk: Desk) -> None:
    async with desk.logged_in(0) as browser, desk.browser(0) as stranger:
        assert (await browser.get("/ui")).status_code == 200
        assert (await stranger.get("/ui")).status_code == 303
        token = await form_token(browser)
        assert (await browser.post("/ui/logout", data={"form_token": token})).status_code == 303
        assert (await browser.get("/ui")).status_code == 303


@pytest.mark.parametrize("place", ["https://example.org", "//example.org", "/v1/operator", "/ui/../v1", ""])
async def test_the_login_leads_nowhere_else(desk: Desk, place: str) -> None:
    async with desk.browser(0) as browser:
        answer = await browser.post("/ui/login", data={"token": TOKEN, "next": place})
        assert answer.headers["location"] == "/ui"
        assert 'value="/ui"' in (await browser.get("/ui/login", params={"next": place})).text


async def test_a_form_from_elsewhere_is_refused(desk: Desk) -> None:
    async with desk.logged_in(0) as browser:
        good = {"form_token": await form_token(browser), "sure": "yes", "seen": "1"}
        path = "/ui/model/0/rollback"
        for fields in ({}, good | {"form_token": ""}, good | {"form_token": "x" * 43}):
            assert (await browser.post(path, data=fields)).status_code == 403
        other = await browser.post(path, data=good, headers={"sec-fetch-site": "cross-site"})
        assert other.status_code == 403
        assert (await browser.post(path, content=b"x" * 5000)).status_code == 400
        assert await desk.pair.parties[0].ledger.rollbacks(desk.pair.task.task_id) == []


async def test_a_rollback_is_wished_for_with_a_tick_and_carried_out_by_the_leader(desk: Desk) -> None:
    leader = desk.pair.server0.leader
    async with desk.logged_in(0) as browser:
        fields = {"form_token": await form_token(browser), "seen": "1"}
        assert (await browser.post("/ui/model/0/rollback", data=fields)).status_code == 409
        answer = await browser.post("/ui/model/0/rollback", data=fields | {"sure": "yes"})
        assert answer.headers["location"] == "/ui/model"
        assert leader.changed.is_set()
        assert "A rollback to version 0 is waiting" in (await browser.get("/ui/model")).text
        assert await leader.step() == RollBack(0)
        assert "version 2 restores the numbers of version 0" in (await browser.get("/ui/model")).text
        again = await browser.post("/ui/model/1/rollback", data=fields | {"sure": "yes"})
        assert again.status_code == 409
        assert "older than the published" in again.text


async def test_server_1_has_no_way_back_of_its_own(desk: Desk) -> None:
    async with desk.logged_in(1) as browser:
        assert "Roll back" not in (await browser.get("/ui/model")).text
        assert (await browser.get("/ui/model/0/rollback")).status_code == 409
        fields = {"form_token": await form_token(browser), "sure": "yes", "seen": "1"}
        assert (await browser.post("/ui/model/0/rollback", data=fields)).status_code == 409


async def test_an_export_holds_the_numbers_of_the_version(desk: Desk) -> None:
    async with desk.logged_in(1) as browser:
        answer = await browser.get("/ui/model/1/export")
        assert 'filename="simulation-v1.safetensors"' in answer.headers["content-disposition"]
        assert (load(answer.content)["rows"] == desk.pair.parties[1].models.load(1).rows).all()
        assert (await browser.get("/ui/model/7/export")).status_code == 404


async def test_what_is_not_there_is_a_page(desk: Desk) -> None:
    async with desk.logged_in(0) as browser:
        for path in ("/ui/rounds/77", "/ui/rounds/many", "/ui/nowhere", "/ui/static/0/page.css", "/ui/rounds?before=x"):
            answer = await browser.get(path)
            assert answer.status_code == 404, path
            assert "<h1>" in answer.text
        assert (await browser.get("/ui/")).headers["location"] == "/ui"


async def test_rounds_are_filtered(desk: Desk) -> None:
    async with desk.logged_in(0) as browser:
        for query, shown in (
            ("", True),
            ("?state=published", True),
            ("?state=aborted", False),
            ("?kind=survey", False),
        ):
            text = (await browser.get(f"/ui/rounds{query}")).text
            assert ('href="/ui/rounds/0"' in text) == shown, query


async def test_a_round_tells_what_was_refused_meanwhile(desk: Desk) -> None:
    desk.pair.parties[0].metrics.refused("ticket-refused")
    await desk.pair.step()
    for power in range(2):
        await a_device(desk.pair, power, name=bytes([9, power]) * 8).take_part()
    await desk.pair.finish()
    async with desk.logged_in(0) as browser:
        assert "ticket-refused" in (await browser.get("/ui/rounds/1")).text
        assert "Nothing was refused" in (await browser.get("/ui/rounds/0")).text


async def test_the_operators_interface_rolls_back_too(desk: Desk) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with desk.browser(0) as browser:
        path = "/v1/operator/models/0/rollback"
        assert (await browser.post(path, params={"seen": 1})).status_code == 401
        answer = await browser.post(path, params={"seen": 1}, headers=headers)
        assert answer.status_code == 202
        assert (await browser.post(path, params={"seen": 1}, headers=headers)).json() == answer.json()
        await desk.pair.server0.leader.step()
        (done,) = (await browser.get("/v1/operator/rollbacks", headers=headers)).json()
        assert (done["source"], done["seen"], done["made"]) == (0, 1, 2)
        refused = await browser.post("/v1/operator/models/1/rollback", params={"seen": 1}, headers=headers)
        assert refused.json()["type"] == "urn:secemb:problem:rollback-refused"
