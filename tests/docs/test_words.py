"""The documents keep one width, one vocabulary and one figure for each claim, and list what there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import RECORDS, ROOT, documents, links, living_documents, prose

WIDTH = 100
GENERATED = ROOT / "docs" / "reference" / "cli.md"
# Turns that the house style avoids; each has a plain word: again, expired, no one, someone, anyone who, from then on.
AVOIDED = re.compile(
    r"\b(anew|nobody|somebody|whoever|ever after|for ever|is over by|so many|at last|in vain|under way)\b",
    re.IGNORECASE,
)
GLOSSARY = ROOT / "docs" / "glossary.md"
_ENTRY = re.compile(r"^\| ([^|]+?) \| (.+) \|$", re.MULTILINE)


def too_wide(text: str) -> list[int]:
    """Return the numbers of the lines of prose past the width; tables, headings and lone links cannot be wrapped."""
    lone = re.compile(r"\s*(?:[-*] |\d+\. )?!?\[[^\]]*\]\([^)]*\)\S*$|[|#]|!\[")
    return [number for number, line in prose(text) if len(line) > WIDTH and not lone.match(line)]


def stray_items(text: str) -> list[int]:
    """Return the numbers of the lines that look like the first item of a list but follow a line of prose."""
    stray, inside, before = [], False, ""
    for number, line in prose(text):
        item = re.match(r"\s*(?:[-*+] |\d+\. )", line) is not None
        if item and before.strip() and not inside:
            stray.append(number)
        inside = item or (inside and line.strip() != "")
        before = line
    return stray


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in living_documents() if page != GENERATED], ids=named)
def test_prose_is_wrapped_at_one_width(page: Path) -> None:
    assert too_wide(page.read_text(encoding="utf-8")) == []


def test_a_line_that_is_too_wide_is_found() -> None:
    wide, link = "word " * 25, f"[a link]({'x' * 120})"
    assert too_wide(f"{wide}\n\n| {wide} |\n\n```\n{wide}\n```\n\n# {wide}\n\n{link}\n\nand {link}\n") == [1, 13]


@pytest.mark.parametrize("page", documents(), ids=named)
def test_a_list_begins_after_an_empty_line(page: Path) -> None:
    """Otherwise a line that happens to begin with a number or a dash is a list on one site and prose on another."""
    assert stray_items(page.read_text(encoding="utf-8")) == []


def test_a_line_that_only_looks_like_a_list_is_found() -> None:
    assert stray_items("It exits with code\n0. Then\n\n1. one\n   more\n2. two\n\n- three\n- four\n") == [2]


@pytest.mark.parametrize("page", [page for page in living_documents() if page != GENERATED], ids=named)
def test_documents_use_plain_words(page: Path) -> None:
    lines = prose(page.read_text(encoding="utf-8"))
    assert [(number, found[0]) for number, line in lines if (found := AVOIDED.search(line))] == []


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that may reach people, with their lines; docstrings are for readers of the code."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def test_messages_and_pages_use_plain_words() -> None:
    products = [ROOT / name for name in ("shared", "sdk", "services", "tools", "lab")]
    modules = [
        page for product in products for page in product.rglob("secemb_*/**/*.py") if "vectors" not in page.parts
    ]
    pages = [page for product in products for page in product.rglob("templates/*.html")]
    assert len(modules) > 100
    assert len(pages) > 10
    found = [(named(page), line, text) for page in modules for line, text in spoken(page.read_text(encoding="utf-8"))]
    found += [(named(page), 0, page.read_text(encoding="utf-8")) for page in pages]
    assert [(page, line, words[0]) for page, line, text in found if (words := AVOIDED.search(text))] == []


def test_an_avoided_word_in_a_message_is_found_and_one_in_a_docstring_is_not() -> None:
    source = 'def f(n):\n    """Begin anew."""\n    raise ValueError(f"{n}: try anew")\n'
    assert [(line, text) for line, text in spoken(source) if AVOIDED.search(text)] == [(3, ": try anew")]


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    entries = _ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))[2:]  # behind the head of the table
    words = [word.lower() for word, _ in entries]
    assert words == sorted(set(words))
    assert all(meaning.endswith(".") for _, meaning in entries)


def test_the_glossary_defines_the_words_of_the_product() -> None:
    words = {word.split(" (")[0] for word, _ in _ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))}
    assert words >= {
        *("task", "round", "session", "slot", "bin", "hold", "receipt", "detection", "seal", "box", "peer", "home"),
        *("transport", "route", "cohort", "capacity", "survey", "evaluation", "dense part", "private part", "vault"),
        *("row tag", "upload MAC", "sampling rate", "ticket", "share", "relay key", "budget", "ledger"),
    }


def test_the_documents_agree_on_how_slow_it_is_without_a_compiler() -> None:
    claims = [claim for page in documents() for claim in re.findall(r"\d+ to \d+\stimes\sslower", page.read_text())]
    assert len(claims) >= 2
    assert len({" ".join(claim.split()) for claim in claims}) == 1


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link).resolve() for link in links(index.read_text(encoding="utf-8"))}
    pages = {page for page in index.parent.rglob("*.md") if page.parent != RECORDS} | {RECORDS / "README.md"}
    assert pages - reached == {index}


def test_every_record_is_listed_with_its_title() -> None:
    listed = (RECORDS / "README.md").read_text(encoding="utf-8")
    for record in RECORDS.glob("[0-9]*.md"):
        assert f"[{record.name[:4]}]({record.name})" in listed


def test_contributing_lists_every_make_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    rows = re.findall(
        r"^\| `make ([a-z-]+)` \| \S", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(targets) > 10
    assert sorted(rows) == sorted(targets)


def test_contributing_describes_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    roots = ("shared", "sdk", "services/party", "services/server0", "services/server1", "tools", "lab")
    for root in roots:
        (package,) = (ROOT / root).glob("secemb_*/__init__.py")
        rooms = [room.parent.name for room in package.parent.glob("*/__init__.py")]
        (section,) = re.findall(rf"^### `{root}/`$(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
        assert sorted(re.findall(r"^\| `(\w+)/` \|", section, re.MULTILINE)) == sorted(rooms), root
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and not folder.name.startswith("_"):
            assert f"`tests/{folder.name}/`" in text
