"""Every link in the documents leads somewhere, and every file, module and target they name exists."""

import importlib
import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, broken_links, code_spans, documents, living_documents

_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|yml|c|h)")
_MODULE = re.compile(r"secemb_(?:shared|sdk|party|server0|server1|tools|lab)(?:\.\w+)*")
_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"build", "dist"}


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize(
    "link",
    [
        "[a page](missing.md)",
        "[a section](page.md#missing)",
        "[a section here](#missing)",
        "![a picture](missing.png)",
        "[outside](../../../../../etc/hostname)",
        "[in a `span`](missing.md)",
    ],
)
def test_a_broken_link_is_found(link: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n## One section\n\n[good](page.md#one-section), [good](#a-page)\n\nand {link}.\n")
    assert broken_links(page) == [re.sub(r".*\((.*)\)", r"\1", link)]


def test_a_link_in_code_is_no_link(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```md\n[code](missing.md)\n```\n\n`[code](missing.md)`\n")
    assert broken_links(page) == []


@pytest.mark.parametrize("page", living_documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_document_names_exists(page: Path) -> None:
    assert missing_files(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", living_documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_document_names_exists(page: Path) -> None:
    assert missing_modules(page.read_text(encoding="utf-8")) == []


def test_a_file_or_module_that_does_not_exist_is_found() -> None:
    text = "`sdk/secemb_sdk/device.py`, `sdk/nothing.py`, `tests/none/`, `secemb_sdk.device`, `secemb_sdk.nothing`"
    assert missing_files(text) == ["sdk/nothing.py", "tests/none/"]
    assert missing_modules(text) == ["secemb_sdk.nothing"]


def missing_files(text: str) -> list[str]:
    """Return the paths in backticks that begin with a folder of the repository and are not there."""
    named = (span for span in code_spans(text) if _PATH.fullmatch(span))
    return [path for path in named if path.split("/")[0] in _FOLDERS and not (ROOT / path).exists()]


def missing_modules(text: str) -> list[str]:
    """Return the dotted names in backticks that are neither a module nor a name in one."""
    named = (found[0] for span in code_spans(text) if (found := _MODULE.match(span)))
    return [name for name in named if not _exists(name)]


def _exists(name: str) -> bool:
    module, _, rest = name.partition(".")
    found: object = importlib.import_module(module)
    for part in rest.split(".") if rest else ():
        try:
            found = importlib.import_module(f"{module}.{part}")
        except ModuleNotFoundError as error:
            if error.name not in {f"{module}.{part}", module}:
                raise  # it exists, and something that it needs does not
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        module = f"{module}.{part}"
    return True
