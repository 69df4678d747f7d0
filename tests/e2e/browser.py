"""A real browser, Debian's Chromium, that remembers what went wrong in it and whom it asked."""

import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright, expect

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "there is no Chromium: apt-get install chromium, or name one in CHROMIUM"


def find_browser(environment: Mapping[str, str]) -> str | None:
    """Return where the browser is, or None; with BROWSER_TESTS=required its absence is a failure, not a skip."""
    path = environment.get("PATH", os.defpath)
    found = environment.get("CHROMIUM") or next(filter(None, (shutil.which(name, path=path) for name in NAMES)), None)
    if found is None and environment.get("BROWSER_TESTS") == "required":
        raise RuntimeError(f"{MISSING}; BROWSER_TESTS=required, and build/chromium.log may say why there is none")
    return found


CHROMIUM = find_browser(os.environ)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 20_000  # milliseconds that something may take to appear
expect.set_options(timeout=PATIENCE)


@dataclass
class Visit:
    """One page in a browser of its own, with what it complained about."""

    page: Page
    home: str  # the address of the server
    complaints: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._see)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")

    def _see(self, request: Request) -> None:
        if not request.url.startswith((self.home + "/", "data:")):
            self.strangers.append(request.url)

    async def go(self, path: str) -> None:
        await self.page.goto(self.home + path)

    async def log_in(self, token: str, path: str = "/ui") -> None:
        await self.go(path)
        await self.page.get_by_label("Operator token").fill(token)
        await self.page.get_by_role("button", name="Log in").click()

    async def heading(self) -> str:
        return (await self.page.locator("h1").inner_text()).strip()

    async def keep(self, name: str) -> None:
        """Keep a picture of the whole page, as an artefact of the test."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def check_quiet(self, *expected: str) -> None:
        """See that nothing was complained about but what is expected, and that no other host was asked."""
        unexpected = [one for one in self.complaints if not any(re.search(words, one) for words in expected)]
        assert not unexpected, unexpected
        assert not self.strangers, self.strangers


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def a_visit(
    browser: Browser, home: str, *, width: int = 1200, scheme: str = "light", scripts: bool = True, zone: str = "UTC"
) -> AsyncIterator[Visit]:
    """Come as somebody new; `scripts` may be switched off, as some readers do."""
    context = await browser.new_context(
        viewport={"width": width, "height": 860},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
        timezone_id=zone,
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE)
    try:
        visit = Visit(await context.new_page(), home)
        visit.listen()
        yield visit
    finally:
        await context.close()
