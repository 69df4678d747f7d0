"""The Makefile: its short measurements use options that exist, and installing packages waits for the lock."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.e2e.commands import LAB_COMMANDS

ROOT = Path(__file__).parents[2]
TARGETS = {
    "bench": "bench",
    "loadtest": "loadtest",
    "memory": "memory",
    "pacing": "pacing",
    "attack": "attack",
    "scale": "scale",
    "wire": "wire",
    "quality": "quality",
    "sequences": "sequences",
    "paper": "paper",
    "report-dp": "report dp",
}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def typed(target: str, *variables: str) -> list[str]:
    """Return the words behind `python -m secemb_lab` that a target would run."""
    # Without what the `make test` around this test was given, which make hands on to every make inside.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKEOVERRIDES", "ARGS"}
    }
    command = ["make", "-n", target, *variables]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return shlex.split(re.findall(r"-m secemb_lab (.*)", done.stdout)[-1])


@pytest.mark.parametrize("target", TARGETS)
def test_a_measurement_can_be_short(target: str) -> None:
    name = TARGETS[target].split()
    whole, quick = typed(target), typed(target, "QUICK=1", "ARGS=--json")
    assert whole[: len(name)] == quick[: len(name)] == name
    known = {option for parameter in LAB_COMMANDS[TARGETS[target]].params for option in parameter.opts}
    assert {word for word in quick if word.startswith("--")} <= known
    assert quick[-1] == "--json"
    assert len(quick) > len(whole) + 1


def test_every_command_of_the_laboratory_has_a_target() -> None:
    assert {*TARGETS.values(), "vectors"} == LAB_COMMANDS.keys()


def test_installing_packages_waits_for_the_lock() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (apt,) = re.findall(r"^APT := (.*)$", text, re.MULTILINE)
    assert "DPkg::Lock::Timeout=300" in apt
    assert not re.findall(r"^\t.*apt-get (?:-\S+ )*(?:update|install) -", text, re.MULTILINE)
