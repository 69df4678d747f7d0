"""The TypeScript device: its own tests in Node, and the vectors in a browser."""

import functools
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator

import pytest
from tests.e2e.browser import a_browser, a_visit, needs_browser
from tests.e2e.typescript import IMPORTS, PACKAGE, ROOT, needs_typescript, sources_newer_than_the_build

pytestmark = needs_typescript

_PAGE = f"""<!doctype html><link rel="icon" href="data:,">
<script type="importmap">{json.dumps({"imports": IMPORTS})}</script>
<script type="module">
import {{ checkVectors }} from "/dist/test/vectors.js";
const names = {json.dumps(sorted(path.stem for path in (ROOT / "tests" / "vectors").glob("*.json")))};
const read = async (name) => [name, await (await fetch(`/vectors/${{name}}.json`)).json()];
const show = (words) => {{ document.body.innerText = words; document.title = "done"; }};
try {{
  show(JSON.stringify(checkVectors(Object.fromEntries(await Promise.all(names.map(read))))));
}} catch (error) {{
  show(String(error));
}}
</script>"""


class _Files(http.server.SimpleHTTPRequestHandler):
    """The package, the vectors beside it, and the page."""

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(_PAGE.encode())
        else:
            super().do_GET()

    def translate_path(self, path: str) -> str:
        if path.startswith("/vectors/"):
            return str(ROOT / "tests" / "vectors" / path.removeprefix("/vectors/"))
        return super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    handler = functools.partial(_Files, directory=str(PACKAGE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_what_is_tested_is_what_the_sources_say() -> None:
    assert sources_newer_than_the_build() == [], "run `make typescript`"


def test_the_packages_own_tests_pass_in_node() -> None:
    tests = sorted(str(path) for path in (PACKAGE / "dist" / "test").glob("*.test.js"))
    done = subprocess.run(["node", "--test", *tests], cwd=PACKAGE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout


def test_the_package_names_no_host_that_it_was_fetched_from() -> None:
    lock = json.loads((PACKAGE / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]
    assert len(json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["dependencies"]) <= 3


@needs_browser
@pytest.mark.asyncio
async def test_every_vector_holds_in_a_browser(site: str) -> None:
    async with a_browser() as browser, a_visit(browser, site) as visit:
        await visit.go("/")
        await visit.page.wait_for_function("document.title === 'done'", timeout=120_000)
        shown = await visit.page.locator("body").inner_text()
        assert shown.startswith("{"), shown
        checked = json.loads(shown)
        assert (checked["negative.refused"], checked["labels.cases"]) >= (700, 80)
        visit.check_quiet()
