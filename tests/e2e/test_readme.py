"""The commands of README and quickstart, typed into a fresh shell one block after the other."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL_DEMO = "--devices 6 --cohort 3 --rounds 4 --items 60"  # what `make help` says ARGS is for
NETWORK = ("ml-100k",)  # rating sets that would be downloaded
PLACEHOLDER = "…"

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("bash", "make"))), reason="there is no bash or no make")


def commands(page: str) -> list[str]:
    """Return the lines of a page's shell blocks, without those that need an address or the network."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if PLACEHOLDER not in line and not any(word in line for word in NETWORK)]


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Make a checkout with nothing in it but what `make demo` installs, and return the variables of a fresh shell."""
    checkout = tmp_path / "secemb"
    checkout.mkdir()
    for path in ROOT.iterdir():
        if path.name not in {".git", ".venv", "build"}:
            (checkout / path.name).symlink_to(path)
    (checkout / ".venv").symlink_to(sys.prefix)
    rows = [f"{person},{item},{(person * item) % 5 + 1}" for person in range(20) for item in range(person, 40)]
    (checkout / "ratings.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "ARGS": SMALL_DEMO,
    }


def type_in(lines: list[str], folder: Path, variables: dict[str, str]) -> str:
    """Type lines into one bash, which ends at the first that fails; return what it says."""
    script = "set -e\n" + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=variables, capture_output=True, text=True, timeout=880, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_every_command_works_as_typed_in_a_fresh_shell(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    lines = commands(page)
    assert any(line.startswith("make demo") for line in lines)
    assert any(line.startswith("secemb ") for line in lines)
    said = type_in(lines, tmp_path / "secemb", shell)
    assert "All checks passed" in said
    assert "loss bound" in said


def test_a_command_that_is_not_found_fails(shell: dict[str, str], tmp_path: Path) -> None:
    """The check itself: `secemb` is no command of a shell in which nothing was activated."""
    with pytest.raises(AssertionError, match="not found"):
        type_in(["secemb kernel"], tmp_path / "secemb", shell)
