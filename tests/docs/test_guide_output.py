"""The operators' guide shows what the commands print today; only keys, dates and places differ."""

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

GUIDE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
_FENCED = re.compile(r"^```(\w*)\n([^`]*)^```$", re.MULTILINE)
_VARYING = {
    r"\b[0-9a-f]{4}(?: [0-9a-f]{4}){15}\b|\b[0-9a-f]{16,64}\b": "HEX",
    r"(?<=\s)[\w-]{43}$": "TOKEN",
    r"\d{4}-\d\d-\d\d(?:T[\d:+]+)?": "DATE",
    r" +": " ",
}


def plain(text: str) -> list[str]:
    """Return the lines without what differs from run to run."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for pattern, word in _VARYING.items():
        lines = [re.sub(pattern, word, line) for line in lines]
    return lines


def names(lines: list[str]) -> list[str]:
    """Return what the lines of a check are about."""
    return [re.sub(r"^(ok|warn|fail) +(.*?)  .*", r"\2", line) for line in lines]


def blocks() -> list[tuple[str, str]]:
    """Return each block of commands that is followed by its output."""
    fenced = [(found[1], found[2]) for found in _FENCED.finditer(GUIDE)]
    return [
        (first[1], second[1]) for first, second in itertools.pairwise(fenced) if (first[0], second[0]) == ("sh", "")
    ]


def shown(command: str) -> tuple[str, str]:
    """Return the one block with this command, and the output that the guide shows for it."""
    (found,) = (block for block in blocks() if command in block[0] and "--replace" not in block[0])
    return found


def secemb(folder: Path, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "secemb_tools", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walk")


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, str]:
    """Return what each command of the guide prints, by the command as the guide has it."""
    found = {}
    for command in (
        "secemb init --role 0 --dir server0 --host 127.0.0.1",
        "secemb init --role 1 --dir server1 --host 127.0.0.1 --peer-bind 127.0.0.1",
        "secemb task create --out films",
        "secemb pair import server1 server0.pair.json",
        "secemb pair import server0 server1.pair.json",
    ):
        (typed,) = re.findall(rf"^{re.escape(command)}.*$", shown(command)[0].replace("\\\n", " "), re.MULTILINE)
        if "import" in command:
            source = command.split()[-1].removesuffix(".pair.json")
            (folder / f"{source}.pair.json").write_text(exported(folder, source))
        found[command] = secemb(folder, *typed.partition("#")[0].split()[1:])
        if "task create" in command:
            for file in (folder / "films" / "server0").iterdir():
                file.rename(folder / "server0" / "task" / file.name)
    return found


def exported(folder: Path, source: str) -> str:
    command = [sys.executable, "-m", "secemb_tools", "pair", "export", source]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_guide_shows_what_setting_up_prints(printed: dict[str, str]) -> None:
    for command, output in printed.items():
        assert sorted(plain(shown(command)[1])) == sorted(plain(output)), command


@pytest.mark.parametrize("role", [0, 1])
def test_the_guide_shows_every_check(printed: dict[str, str], folder: Path, role: int) -> None:
    assert printed
    offline = names(secemb(folder, "check", f"server{role}", "--offline").splitlines())
    in_guide = names(shown(f"secemb check server{role}\n")[1].splitlines())
    assert [name for name in in_guide if name in offline] == offline
    assert set(in_guide) - set(offline) <= {"peer", "same task", "clock", "same model", "devices certificate"}


def test_the_guide_shows_what_a_rotation_prints(printed: dict[str, str], folder: Path, tmp_path: Path) -> None:
    assert printed
    place = Path(shutil.copytree(folder, tmp_path / "rotation"))
    rotated = secemb(place, "pair", "rotate", "server0")
    assert plain(shown("secemb pair rotate server0")[1]) == plain(rotated)
    (place / "server0.pair.json").write_text(exported(place, "server0"))
    commands, told = next(block for block in blocks() if "pair import --replace server1" in block[0])
    output = [secemb(place, *typed.split()[1:]) for typed in commands.splitlines()]
    assert sorted(plain(told)) == sorted(plain("".join(output)))
    secemb(place, "pair", "switch", "server0", "--now")
    assert '"next_certificate"' not in exported(place, "server0")


def test_a_line_that_no_command_prints_is_found() -> None:
    assert plain("peer url  https://127.0.0.1:8441\n") != plain("peer address  https://127.0.0.1:8441\n")
    assert plain("certificate  " + "0a5e " * 15 + "c41d") == plain("certificate  " + "1234 " * 15 + "abcd")
