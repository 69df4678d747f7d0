"""Steering a task through the operator API and the page: who may, what is shown, and what is recorded."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from tests.devices.scripted import a_device
from tests.unit.operator_desk import READ_ONLY, TOKEN, Desk, a_desk, form_token

from secemb_party.ledger import RoundState

pytestmark = pytest.mark.asyncio
ADMIN = {"authorization": f"Bearer {TOKEN}"}
ONLOOKER = {"authorization": f"Bearer {READ_ONLY}"}
WHY = {"reason": "new disks <b>"}


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


async def post(browser: httpx.AsyncClient, path: str, **query: str) -> httpx.Response:
    return await browser.post(f"/v1/operator/{path}", params=query, headers=ADMIN)


async def words(browser: httpx.AsyncClient, path: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", (await browser.get(path)).text).split())


async def send(browser: httpx.AsyncClient, **fields: str) -> httpx.Response:
    return await browser.post("/ui/control", data={"form_token": await form_token(browser), **fields})


@pytest.mark.parametrize("role", [0, 1])
async def test_each_operator_pauses_and_drains_their_own_server(
    desk: Desk, role: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secemb_party.http.health.FRESH_SECONDS", 0.0)  # no second passes here
    async with desk.browser(role) as browser:
        for path in ("pause", "drain"):
            refused = await post(browser, path)
            assert refused.status_code == 400, "a reason is needed"
            done = await post(browser, path, **WHY)
            assert done.status_code == 200
            told = done.json()["paused" if path == "pause" else "draining"]
            assert told == {"by": "admin", "reason": "new disks <b>", "at": desk.pair.clock()}
        await desk.pair.exchange()  # server 1 must not be stopped before server 0 knows
        assert (await browser.get("/readyz")).status_code == 503
        await desk.pair.exchange()
        shown = (await browser.get("/v1/operator/control", headers=ONLOOKER)).json()
        assert (shown["safe_to_stop"], shown["unfinished"], shown["peer"]) == (True, None, None)
        for path in ("resume", "drain/end"):
            assert (await post(browser, path)).status_code == 200
        shown = (await browser.get("/v1/operator/control", headers=ONLOOKER)).json()
        assert (shown["paused"], shown["draining"], shown["safe_to_stop"]) == (None, None, False)
        assert (await browser.get("/readyz")).status_code == 200
    found = await desk.pair.parties[role].ledger.actions()
    assert [(one.by, one.what) for one in found] == [
        ("admin", "drain end"),
        ("admin", "resume"),
        ("admin", "drain"),
        ("admin", "pause"),
    ]
    assert await desk.pair.parties[1 - role].ledger.actions() == []


async def test_a_pause_reaches_the_page_of_the_other_server_with_its_reason_and_without_a_name(desk: Desk) -> None:
    async with desk.browser(1) as browser:
        await post(browser, "pause", **WHY)
    await desk.pair.exchange()
    async with desk.logged_in(0) as browser:
        text = await words(browser, "/ui")
        assert re.search(r"Server 1 has not taken part in new rounds since .* \(pause\): new disks &lt;b&gt;", text)
        assert "admin" not in text.replace("Logged in as admin", "")


@pytest.mark.parametrize("role", [0, 1])
async def test_the_page_steers_shows_what_holds_and_lists_who_did_what(desk: Desk, role: int) -> None:
    async with desk.logged_in(role) as browser:
        text = await words(browser, "/ui/control")
        assert "rounds open automatically" in text
        assert "Nothing yet." in text
        assert (await send(browser, what="pause")).status_code == 409  # no reason
        assert (await send(browser, what="stop", reason="x")).status_code == 409
        assert (await browser.post("/ui/control", data={"what": "pause", "reason": "x"})).status_code == 403
        for what in ("pause", "drain"):
            assert (await send(browser, what=what, **WHY)).status_code == 303
        for path in ("/ui", "/ui/control"):
            text = await words(browser, path)
            assert "Paused by admin now: new disks &lt;b&gt;. No new round opens." in text
            assert "Drain started by admin now: new disks &lt;b&gt;." in text
        text = await words(browser, "/ui/control")
        assert "admin pause new disks &lt;b&gt;" in text
        for what in ("resume", "drain-end"):
            assert (await send(browser, what=what)).status_code == 303
        assert "rounds open automatically" in await words(browser, "/ui/control")
    async with desk.logged_in(role, READ_ONLY) as browser:
        assert "admin drain new disks" in await words(browser, "/ui/control")
        assert "<button>Pause" not in (await browser.get("/ui/control")).text
        assert (await send(browser, what="pause", **WHY)).status_code == 403
        assert desk.pair.parties[role].control.pause is None


async def test_a_round_is_closed_at_server_0_alone_and_aborted_at_either(desk: Desk) -> None:
    pair = desk.pair
    await pair.step()
    await a_device(pair, 0, name=b"a session so far").take_part()
    async with desk.browser(0) as browser, desk.browser(1) as other:
        refused = await post(browser, "rounds/1/close", **WHY)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:secemb:problem:control-refused")
        assert "wait for 1 more" in refused.json()["detail"]
        refused = await post(other, "rounds/1/close", **WHY)
        assert "ask its operator" in refused.json()["detail"]
        assert (await post(other, "rounds/0/abort", **WHY)).status_code == 409
        assert (await post(other, "rounds/1/abort", **WHY)).status_code == 202
    await pair.exchange()
    await pair.step()
    async with desk.logged_in(0) as browser:
        assert "by the operator of server 1: new disks" in await words(browser, "/ui/rounds/1")
        await pair.step()
        assert "Close round 2" in await words(browser, "/ui/control")
        assert (await send(browser, what="abort", round="2", **WHY)).status_code == 303
        assert "admin asked for the open round to be aborted: new disks" in await words(browser, "/ui")
        await pair.step()
    for role in (0, 1):
        found = await pair.parties[role].ledger.rounds(pair.task.task_id)
        assert [one.state for one in found] == [RoundState.ABORTED, RoundState.ABORTED, RoundState.PUBLISHED]
