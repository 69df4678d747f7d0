"""The documents as the tests see them: which there are, and what in them is prose, code or a link."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs" / "adr"

_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def documents() -> list[Path]:
    """Return every document that people read, those outside `docs` too."""
    return [*sorted(ROOT.glob("*.md")), ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def living_documents() -> list[Path]:
    """Return the documents that describe what there is today: a decision record is not edited later."""
    history = {ROOT / "CHANGELOG.md", *(page for page in RECORDS.glob("[0-9]*.md"))}
    return [page for page in documents() if page not in history]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, with their numbers."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def links(text: str) -> list[str]:
    """Return the target of each link and image outside code."""
    return [target for _, line in prose(text) for target in _LINK.findall(_SPAN.sub("``", line))]


def code_spans(text: str) -> list[str]:
    """Return what stands in backticks."""
    return [span for _, line in prose(text) for span in _SPAN.findall(line)]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in prose(text):
        if heading := _HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            found.add(next(name for name in (slug, *(f"{slug}-{n}" for n in range(1, 99))) if name not in found))
    return found


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere in this repository; addresses elsewhere are not tried."""
    text, broken = page.read_text(encoding="utf-8"), []
    for target in links(text):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page.resolve()
        known = goal.is_relative_to(ROOT) or goal.is_relative_to(page.parent)
        if not known or not goal.exists() or (anchor and anchor not in anchors(goal.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken
