"""`secemb dev --web`: a device in a real browser takes part in a round, and a page that is not allowed does not."""

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.browser import Visit, a_browser, a_visit, needs_browser
from tests.e2e.commands import check_shape, read_json, refused
from tests.e2e.foreground import Running
from tests.e2e.test_dev import end, is_json
from tests.e2e.typescript import PACKAGE, needs_typescript

pytestmark = [needs_typescript, needs_browser]
PHONE = 390  # pixels
REACHES = "address => fetch(address).then(answer => answer.status, error => String(error))"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running.start(tmp_path, "dev", "--items", "60", "--cohort", "3", "--warm-up", "2", *words))
        return started[-1]

    yield begin
    for one in started:
        one.end()


@pytest.fixture
def stranger() -> Iterator[str]:
    """Yield the address of a web page that no server allows."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(PACKAGE / "src"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def take_part(visit: Visit, facts: dict[str, Any]) -> None:
    page = visit.page
    for film, stars in ((0, 5), (1, 1), (2, 4)):
        await page.locator("#films li").nth(film).get_by_role("button", name=f"{stars} of 5").click()
    await page.get_by_role("button", name="Take part in a round").click()
    await page.get_by_text("Both servers hold their half of round").wait_for(timeout=60_000)
    await page.get_by_role("button", name="Recommend films").click()
    await page.locator("#best li").nth(9).wait_for()
    assert "The " in await page.locator("#best li").first.inner_text()
    relayed = [await page.locator(f"#sent{server} li").all_inner_texts() for server in (0, 1)]
    assert [len(one) for one in relayed] == [2, 2]
    assert "a box for server 1" in relayed[0][1]
    assert all("through server 0" in one for one in relayed[1])
    assert "bytes to servers 0 and 1" in await page.locator("#receipts li").first.inner_text()
    assert await page.locator("#seen tr").count() >= 2


@pytest.mark.asyncio
async def test_a_page_on_a_phone_takes_part_in_a_round_and_another_page_is_refused(
    start: Callable[..., Running], stranger: str
) -> None:
    dev = start("--web", "--json")
    dev.wait_until(lambda one: is_json(one.text()))
    facts = read_json(dev.text())
    check_shape("dev", facts)
    async with a_browser() as browser:
        async with a_visit(browser, facts["page"], width=PHONE) as visit:
            await visit.go("/")
            await take_part(visit, facts)
            wide = await visit.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, "nothing is wider than the phone"
            await visit.keep("dev-web-phone")
            await check_reopening(visit)
            known = json.loads(await exported(visit))
            assert len(known["ratings"]) == 3
            assert known["session"] is None
            view = f"{facts['servers'][1]}/v1/tasks/{facts['task_id']}"
            assert await visit.page.evaluate(REACHES, view) == 200
            await check_one_tab(visit)
            assert not visit.complaints, visit.complaints
            asked = {one.split("/v1/")[0] for one in visit.strangers}
            assert asked == {facts["servers"][0], facts["servers"][1]}, "nobody but the servers"
        async with a_visit(browser, stranger) as visit:
            await visit.go("/index.ts")
            assert "Failed to fetch" in await visit.page.evaluate(REACHES, view)
            assert "Failed to fetch" in await visit.page.evaluate(REACHES, f"{facts['page']}/seen")
    dev.wait_until(lambda one: "train: 1 of yours, 2 helpers" in one.errors())
    end(dev)


async def check_reopening(visit: Visit) -> None:
    """Ratings and receipts are still there after the page was closed."""
    await visit.go("/")
    await visit.page.get_by_text("3 rated.").wait_for()
    assert await visit.page.locator("#receipts li").count() == 1


async def exported(visit: Visit) -> str:
    await visit.page.get_by_role("button", name="Show everything").click()
    await visit.page.locator("#exported").wait_for(state="visible")
    return await visit.page.locator("#exported").inner_text()


async def check_one_tab(visit: Visit) -> None:
    """Another tab of the same browser cannot open the home, and says why."""
    other = await visit.page.context.new_page()
    await other.goto(visit.home)
    await other.get_by_text("another tab has this home open").wait_for()
    await other.close()


def test_a_page_needs_a_model_and_addresses_that_a_browser_takes(start: Callable[..., Running]) -> None:
    assert "no browser trusts the certificate" in refused("dev", "--web", "--tls", "--items", "60", "--cohort", "3")
