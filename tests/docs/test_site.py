"""The documentation site builds without a warning, holds every page, and has no broken link and no foreign script."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.docs.pages import ROOT

_LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}


class Page(HTMLParser):
    """The ids, the internal links and the resources of one page of the site."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        target = values.get("href" if tag in {"a", "link"} else "src")
        if target and "canonical" not in values.get("rel", ""):
            self.targets.append(target)
            if tag in _LOADED:
                self.loaded.append(target)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    plain = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, timeout=120, check=False)


def copy_sources(folder: Path) -> Path:
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


def broken_targets(site: Path) -> list[str]:
    """Return each link of each page that leads nowhere within the site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin at the root of the server
            continue
        for target in page.targets:
            if ":" in target.split("/")[0]:
                continue
            place, _, anchor = unquote(target).partition("#")
            goal = (path.parent / place.partition("?")[0]).resolve() if place else path
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.exists() or (anchor and goal in pages and anchor not in pages[goal].ids):
                broken.append(f"{path.relative_to(site)}: {target}")
    return broken


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_sources(tmp_path_factory.mktemp("site"))
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "Warning" not in built.stdout + built.stderr
    return folder / "build" / "site"


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert broken_targets(site) == []


def test_every_page_is_built_and_listed_in_the_contents(site: Path) -> None:
    listed = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    written = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(written)
    for page in written:
        assert (site / page.replace("README.md", "index.md")).with_suffix(".html").exists(), page


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = [one for path in site.rglob("*.html") for one in Page(path.read_text(encoding="utf-8")).loaded]
    assert [target for target in loaded if target.startswith(("http:", "https:", "//"))] == []
    # The theme fetches a script for diagrams as soon as a page has one.
    assert [path.name for path in site.rglob("*.html") if 'class="mermaid"' in path.read_text(encoding="utf-8")] == []


def test_a_link_to_a_missing_page_fails_the_build(tmp_path: Path) -> None:
    page = copy_sources(tmp_path) / "docs" / "quickstart.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[nowhere](missing.md)\n", encoding="utf-8")
    assert build(tmp_path).returncode != 0


def test_a_broken_link_of_the_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<p id="here"><a href="#here"></a><a href="#gone"></a><img src="gone.png">')
    assert broken_targets(tmp_path) == ["index.html: #gone", "index.html: gone.png"]
