"""The operator's page in a real browser, on two real servers: what it shows, what it refuses, whom it asks."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from safetensors.numpy import load_file
from tests.devices.over_http import Device, gather
from tests.e2e.browser import Visit, a_browser, a_visit, needs_browser
from tests.e2e.readability import FAINT, FAULTS
from tests.e2e.servers import Servers, secemb, set_up, wait_for
from tests.unit.sessions import make_task

from secemb_party.ledger import Ledger
from secemb_server0.figures import pool, read_evaluations
from secemb_shared.messages.measures import EvaluationSums

pytestmark = [needs_browser, pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
PAGES = ["/ui", "/ui/rounds", "/ui/rounds/0", "/ui/quality", "/ui/privacy", "/ui/guard", "/ui/peer", "/ui/model"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pair = set_up(Path(tmp_path_factory.mktemp("page")), changes={"join-seconds": 60, "upload-seconds": 120})
    try:
        pair.start()
        asyncio.run(run_rounds(pair, 2))
        asyncio.run(note_results(pair))
        yield pair
    finally:
        pair.end()


async def run_rounds(servers: Servers, count: int) -> None:
    """Let four devices, a full cohort, take part in each of so many rounds."""
    for _ in range(count):
        await finish(servers, await gather(servers))


async def finish(servers: Servers, devices: list[Device]) -> None:
    for device in devices:
        await device.send_update()
        await device.close()
    await asyncio.to_thread(wait_for, "the round ends", partial(has_ended, servers, devices[0]))


def has_ended(servers: Servers, device: Device) -> bool:
    return servers.pair[0].state(device.session.round.number) == "published"


async def note_results(servers: Servers) -> None:
    """Note figures as evaluation rounds would have: these devices measure nothing."""
    url = f"sqlite:///{servers.pair[0].folder}/data/ledger.db"
    task = make_task(items=400, capacity=60)
    by_round: dict[int, list[float]] = {}
    async with await Ledger.open(url, migrate=False) as ledger:
        for number in range(60):
            by_round[number] = sums = evaluation_sums(0.5 ** (number / 15))
            figures = read_evaluations(task, [sums])
            data = {"round": number, **figures, "sums": sums, "window": pool(task, by_round)}
            await ledger.append_event("result", data, 1_790_000_000.0 + 600 * number)


def evaluation_sums(fall: float) -> list[float]:
    """Return sums over a hundred devices with eight held-out ratings each."""
    count, squared, ndcg = 800.0, 800 * (0.86 + 0.3 * fall) ** 2, 43 - 20 * fall
    sums = EvaluationSums(
        predictions=count,
        squared=squared,
        absolute=count * (0.67 + 0.2 * fall),
        above=count / 2,
        spread=count * 1.5,
        biases=count * 0.89,
        predictions_2=count * 8 / 60,
        both=squared * 8 / 60,
        squared_2=squared * squared / 100 * 1.4 / 60,
        rankings=100.0,
        hits=70 - 30 * fall,
        recall=0.8 * ndcg,
        ndcg=ndcg,
        reciprocal=0.9 * ndcg,
        recall_2=0.4 * ndcg,
        ndcg_2=0.5 * ndcg,
        reciprocal_2=0.6 * ndcg,
        popular_hits=50.0,
        popular_recall=24.0,
        popular_ndcg=27.0,
        popular_reciprocal=25.0,
    )
    return [float(value) for value in sums.numbers()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with a_browser() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser, servers: Servers) -> AsyncIterator[Visit]:
    async with a_visit(browser, servers.pair[0].operator_url) as found:
        yield found


async def see(page: Page, words: str) -> None:
    await expect(page.locator("main")).to_contain_text(words)


async def test_an_operator_logs_in_watches_a_round_finish_and_opens_it(visit: Visit, servers: Servers) -> None:
    page = visit.page
    await visit.log_in(servers.operator_tokens[0])
    await see(page, "Waiting for devices: 0 of at least")
    number = int((await visit.heading()).removeprefix("Round "))
    devices = await gather(servers)
    await expect(page.locator(".timeline li", has_text="Keys").locator(".count")).to_have_text("4")
    await visit.keep("live")
    await page.evaluate("window.sameLoad = true")
    for device in devices[:3]:
        await device.send_update()
    await expect(page.locator(".timeline li", has_text="Updates").locator(".count")).to_have_text("3")
    await devices[3].send_update()
    await expect(page.locator("h1")).to_have_text(f"Round {number + 1}")  # without a click
    row = page.get_by_role("row", name=re.compile(rf"^{number} train published"))
    await expect(row).to_be_visible()
    await expect(page.locator("#announcer")).to_contain_text(f"Round {number + 1} is open.")
    await expect(page.locator("#events li").first).to_contain_text(f"Round {number} has ended; its model is published.")
    for words in ("no longer accepts messages", "is sealed", "has been summed", "has been reconstructed"):
        await expect(page.locator("#events li", has_text=f"Round {number} {words}")).to_have_count(1)
    assert await page.evaluate("window.sameLoad")  # told by the stream, not by loading the page again
    await row.get_by_role("link").click()
    assert await visit.heading() == f"Round {number}"
    for words in ("Sessions counted", "Nothing was refused.", "Share of server 1", "the same on both servers", "kB"):
        await see(page, words)
    for role in (0, 1):
        ((listed,),) = servers.pair[role].ask(f"SELECT list_digest FROM rounds WHERE number = {number}")
        assert listed.hex() in (await page.locator("main").inner_text()).replace(" ", "")
    await visit.keep("round")
    visit.check_quiet()
    for device in devices:
        await device.close()


async def test_a_wrong_token_does_not_open_the_door(visit: Visit) -> None:
    for path in PAGES:
        await visit.go(path)
        assert await visit.heading() == "Log in"
    await visit.log_in("not the token")
    await see(visit.page, "This is not an active operator token")
    await visit.keep("login")
    assert await visit.page.context.cookies() == []
    visit.check_quiet("401")


async def test_the_cookie_is_out_of_reach_and_the_page_leads_back_where_one_wanted_to_go(
    visit: Visit, servers: Servers
) -> None:
    await visit.log_in(servers.operator_tokens[0], "/ui/model")
    assert await visit.heading() == "Model"
    (cookie,) = await visit.page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Strict", "/ui")
    assert await visit.page.evaluate("document.cookie") == ""
    await visit.page.get_by_role("button", name="Log out").click()
    await visit.go("/ui/model")
    assert await visit.heading() == "Log in"
    visit.check_quiet()


async def test_a_model_is_exported_and_rolled_back_with_a_confirmation(
    visit: Visit, servers: Servers, tmp_path: Path
) -> None:
    page = visit.page
    await visit.log_in(servers.operator_tokens[0], "/ui/model")
    newest = servers.pair[0].ask("SELECT max(version) FROM model_versions")[0][0]
    devices = await gather(servers)  # the open round does not end before they have sent their updates
    async with page.expect_download() as download:
        await page.get_by_role("link", name=f"Export version {newest - 1}").click()
    path = tmp_path / "export.safetensors"
    await (await download.value).save_as(path)
    assert np.array_equal(load_file(path)["rows"], servers.model(0, newest - 1).rows)
    await visit.keep("model")
    await page.get_by_role("link", name=f"Roll back to version {newest - 1}").click()
    assert await visit.heading() == f"Roll back to version {newest - 1}?"
    await visit.keep("rollback")
    await page.get_by_role("button", name="Roll back").click()
    assert "rollback" in page.url  # the box must be ticked
    await page.get_by_role("checkbox").check()
    await page.get_by_role("button", name="Roll back").click()
    await see(page, f"A rollback to version {newest - 1} is waiting for round")
    await finish(servers, devices)  # and makes one version more
    await see(page, f"version {newest + 2} restores the numbers of version {newest - 1}")
    for role in (0, 1):
        assert np.array_equal(servers.model(role, newest + 2).rows, load_file(path)["rows"])
    await visit.keep("rolled-back")
    visit.check_quiet()


async def test_a_read_only_login_sees_every_page_and_no_button_and_cannot_forge_one(
    visit: Visit, servers: Servers
) -> None:
    place = ("--config", servers.pair[0].folder, "--json")  # in threads: a command has an event loop of its own
    made = json.loads(await asyncio.to_thread(secemb, "operator", "add", "onlooker", *place))
    await visit.log_in(made["token"], "/ui/model")  # the server is running, and accepts it at once
    page, before = visit.page, servers.pair[0].ask("SELECT count(*) FROM rollbacks")
    await expect(page.locator("footer")).to_contain_text("Logged in as onlooker, read-only.")
    for path in PAGES:
        await visit.go(path)
        assert await visit.heading() != "Log in"
        assert await page.get_by_role("link", name="Roll back").count() == 0
        forms = await page.locator("form[method=post]").evaluate_all("all => all.map(one => one.action)")
        assert [one.removeprefix(servers.pair[0].operator_url) for one in forms] == ["/ui/logout"], path
    status = await page.evaluate(
        """async () => (await fetch("/ui/model/0/rollback", {method: "POST", body: new URLSearchParams({
            form_token: document.querySelector("[name=form_token]").value, sure: "yes", seen: "1"})})).status"""
    )
    assert status == 403
    assert servers.pair[0].ask("SELECT count(*) FROM rollbacks") == before
    await asyncio.to_thread(secemb, "operator", "revoke", "onlooker", *place)
    await visit.go("/ui/model")
    assert await visit.heading() == "Log in"


async def test_a_form_of_another_session_is_refused(visit: Visit, servers: Servers) -> None:
    await visit.log_in(servers.operator_tokens[0], "/ui/model/0/rollback")
    await visit.go("/ui/model")
    before = servers.pair[0].ask("SELECT count(*) FROM rollbacks")
    status = await visit.page.evaluate(
        """async () => (await fetch("/ui/model/0/rollback", {method: "POST",
            body: new URLSearchParams({form_token: "guessed", sure: "yes", seen: "1"})})).status"""
    )
    assert status == 403
    assert servers.pair[0].ask("SELECT count(*) FROM rollbacks") == before


async def test_the_checks_of_this_file_find_what_they_look_for(visit: Visit, servers: Servers) -> None:
    await visit.go("/ui/login")
    wrong = "<h2>First</h2><img><input name='x'><button></button><p style='color: red'>P</p><div><pre></pre></div>"
    await visit.page.set_content(wrong)
    await visit.page.evaluate("""() => {
        document.querySelector("div").style.overflowX = "auto";
        document.querySelector("pre").textContent = "wide".repeat(1000);
    }""")
    found = " ".join(await visit.page.evaluate(FAULTS))
    for words in ("heading 2", "not one h1", "landmark main", "label x", "empty", "image", "inline P"):
        assert words in found
    for words in ("scrolls, not by keyboard", "scrolls, no cue"):
        assert words in found
    await visit.page.set_content("<p>black on white</p><font color='#888888'>grey on white</font>")
    (faint,) = await visit.page.evaluate(FAINT)
    assert "grey on white" in faint
    other = servers.pair[1].operator_url  # another host to this page
    await visit.page.set_content(f"<img src='{other}/ui/static/none.svg' alt=''>")
    await visit.page.wait_for_load_state("networkidle")
    assert visit.strangers == [f"{other}/ui/static/none.svg"]
    with pytest.raises(AssertionError):
        visit.check_quiet()


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("width", [1200, 360])
async def test_every_page_can_be_read_by_everybody(browser: Browser, servers: Servers, role: int, width: int) -> None:
    async with a_visit(browser, servers.pair[role].operator_url, width=width) as visit:
        await visit.log_in(servers.operator_tokens[role])
        for path in PAGES:
            await visit.go(path)
            assert await visit.page.evaluate(FAULTS) == [], path
            for scheme in SCHEMES:
                await visit.page.emulate_media(color_scheme=scheme)
                assert await visit.page.evaluate(FAINT) == [], (path, scheme)
                name = path.removeprefix("/ui").strip("/").replace("/", "-") or "live"
                await visit.keep(f"server{role}-{width}-{scheme}-{name}")
        visit.check_quiet()


async def test_quality_is_drawn_from_its_table_and_can_be_zoomed(visit: Visit, servers: Servers) -> None:
    page = visit.page
    await visit.log_in(servers.operator_tokens[0], "/ui/quality")
    await expect(page.locator("#charts canvas")).to_have_count(2)
    assert await page.locator("#results tbody tr").count() == 60
    for words in ("rounds 55, 56, 57, 58, 59", "On 4,000 held-out ratings", "its biases alone", "the mean rating"):
        await see(page, words)
    for words in ("From 500 devices", "among 20 items", "NDCG at 10", "By popularity", "95 % interval"):
        await see(page, words)
    before = await page.locator("#charts .chart").first.screenshot()
    await page.get_by_role("button", name="Zoom in").click()
    assert await page.locator("#charts .chart").first.screenshot() != before
    await page.get_by_role("button", name="All rounds").click()
    await page.get_by_role("button", name="Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await visit.keep("quality-dark")
    visit.check_quiet()


async def test_everything_can_be_reached_with_the_keyboard(visit: Visit, servers: Servers) -> None:
    page = visit.page
    await visit.go("/ui")
    await page.keyboard.type(servers.operator_tokens[0])  # the field has the focus
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text("Round")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == "Peer":
            break
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Peer")
    await see(page, "Both servers publish the same model.")
    visit.check_quiet()


async def test_times_are_written_in_the_readers_zone_also_those_that_come_later(
    browser: Browser, servers: Servers
) -> None:
    url, zone = servers.pair[0].operator_url, "Pacific/Marquesas"  # half past the hour, and often on another day
    async with a_visit(browser, url, zone=zone) as there, a_visit(browser, url) as here:
        for visit in (there, here):
            await visit.log_in(servers.operator_tokens[0], "/ui/rounds/0")
            await see(visit.page, "Time")
        time = there.page.locator("main time").first
        at = datetime.fromisoformat(await time.get_attribute("datetime") or "")
        await expect(time).to_contain_text(f"{at.astimezone(ZoneInfo(zone)):%H:%M}")
        await expect(time).to_have_attribute("title", f"{at:%Y-%m-%d %H:%M:%S} UTC")
        await expect(here.page.locator("main time").first).to_contain_text(f"{at:%H:%M}")
        await expect(there.page.locator("footer")).to_contain_text(f"{zone} (UTC−09:30)")
        await expect(here.page.locator("footer")).to_contain_text("Times are UTC.")
        await there.go("/ui")
        await there.page.wait_for_selector("#live time[title]")
        old = await there.page.locator("#live time").first.element_handle()
        assert old is not None
        await there.page.wait_for_function("(one) => !one.isConnected", arg=old)  # the part was renewed
        await expect(there.page.locator("#live time:not([title])")).to_have_count(0)
        for visit in (there, here):
            visit.check_quiet()


async def test_the_page_can_be_read_without_scripts(browser: Browser, servers: Servers) -> None:
    async with a_visit(browser, servers.pair[1].operator_url, scripts=False) as visit:
        await visit.log_in(servers.operator_tokens[1])
        for path, words in (
            ("/ui", "Throughput"),
            ("/ui/rounds/0", "Digests"),
            ("/ui/model", "Only server 0 can start"),
        ):
            await visit.go(path)
            await see(visit.page, words)
        visit.check_quiet()


@pytest.mark.parametrize("path", ["/ui", "/ui/model", "/ui/capacity"])
async def test_a_session_that_expires_under_ones_eyes_leads_to_the_login(
    visit: Visit, servers: Servers, path: str
) -> None:
    page = visit.page
    await visit.log_in(servers.operator_tokens[0], path)
    await expect(page.get_by_role("button", name="Log out")).to_be_visible()
    await page.context.clear_cookies()  # as a browser does with a cookie whose time is over
    await see(page, "Your session has expired. Log in again.")  # without a click
    assert await visit.heading() == "Log in"
    await visit.keep("session-over")
    await page.get_by_label("Operator token").fill(servers.operator_tokens[0])
    await page.get_by_role("button", name="Log in").click()
    await expect(page.locator("h1")).to_contain_text("Round")
    visit.check_quiet()


async def test_a_server_that_stops_is_noticed_and_a_session_that_is_over_leads_to_the_login(
    browser: Browser, servers: Servers
) -> None:
    one = servers.pair[1]
    async with a_visit(browser, one.operator_url) as visit, a_visit(browser, servers.pair[0].operator_url) as other:
        await visit.log_in(servers.operator_tokens[1])
        await other.log_in(servers.operator_tokens[0])
        one.send(signal.SIGKILL)
        await expect(visit.page.locator("#offline")).to_be_visible()
        await visit.keep("server-down")
        await other.go("/ui/peer")
        await see(other.page, "Server 1 cannot be reached")
        await other.keep("peer-down")
        assert one.process is not None
        one.process.wait()
        one.start()
        await see(visit.page, "Your session has expired. Log in again.")  # sessions are of the process
        await visit.log_in(servers.operator_tokens[1])
        await expect(visit.page.locator("#offline")).to_be_hidden()
        visit.check_quiet("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "htmx:(sendError|afterRequest)")
