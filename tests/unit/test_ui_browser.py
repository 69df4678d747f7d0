"""Where the tests of the page must run, a missing browser is a failure that names the fix, and not a silent skip."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.e2e.browser import find_browser

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "id", "tail", "touch", "mkdir")


def test_a_browser_is_found_by_its_name_or_where_it_is_said_to_be(tmp_path: Path) -> None:
    assert find_browser({"PATH": str(tmp_path)}) is None
    assert find_browser({"PATH": str(tmp_path), "CHROMIUM": "/somewhere/else"}) == "/somewhere/else"
    program = tmp_path / "chromium"
    program.touch(mode=0o755)
    assert find_browser({"PATH": str(tmp_path), "BROWSER_TESTS": "required"}) == str(program)


def test_a_browser_that_is_required_and_missing_fails_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="apt-get install chromium"):
        find_browser({"PATH": str(tmp_path), "BROWSER_TESTS": "required"})


def test_what_is_merged_has_been_seen_in_a_browser() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert 0 < script.index("export BROWSER_TESTS=required") < script.index("make test")


def told(text: str) -> list[str]:
    """Return the variables that a script sets or a test reads."""
    return re.findall(
        r"\b([A-Z][A-Z0-9_]*)=|os\.environ(?:\.get\(|\[)\"([A-Z0-9_]+)\"|os\.getenv\(\"([A-Z0-9_]+)\"", text
    )


def test_what_the_tests_are_told_is_no_setting_of_a_server() -> None:
    # Servers refuse variables with their prefix that they do not know, so that a setting is never misspelt in silence.
    places = [ROOT / ".ci" / "run", ROOT / "Makefile", *(ROOT / "tests").rglob("*.py")]
    names = {name for place in places for found in told(place.read_text(encoding="utf-8")) for name in found}
    assert {"BROWSER_TESTS", "SOAK_TESTS", "ML100K"} <= names
    assert not [name for name in names if name.startswith("SECEMB_")]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(("wish", "code"), [("", 0), ("required", 2)])
def test_make_stops_where_the_browser_is_required_and_cannot_be_installed(tmp_path: Path, wish: str, code: int) -> None:
    for name in TOOLS:
        os.symlink(str(shutil.which(name)), tmp_path / name)
    (tmp_path / ".created").touch()  # stands for an environment that is there
    make = [str(shutil.which("make")), "-C", str(ROOT), f"VENV={tmp_path}", str(tmp_path / ".browser")]
    environment = {"PATH": str(tmp_path), "BROWSER_TESTS": wish}
    run = subprocess.run(make, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert "apt-get install chromium" in run.stdout + run.stderr
    assert not (tmp_path / ".browser").exists()
