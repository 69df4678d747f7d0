"""What the documents tell people to type exists: commands, their options, and the code of the research guide."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.docs.pages import ROOT, living_documents

from secemb_tools import simulate
from secemb_tools.cli.main import app

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(secemb [^`]+)`(?!`)")
RESEARCH = (ROOT / "docs" / "tutorials" / "research.md").read_text(encoding="utf-8")


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of each `secemb` command, of blocks for a shell and of prose."""
    for language, block in _FENCED.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if language == "sh" else []
        yield from (shlex.split(line, comments=True) for line in lines if line.startswith("secemb "))
    for span in _SPAN.findall(_FENCED.sub("", text)):
        yield span.split()


def unknown_options(words: list[str]) -> list[str]:
    """Return the options of a command that it does not have."""
    command: Any = typer.main.get_command(app)
    places = [place for place, word in enumerate(words) if word.startswith("-")]
    for word in words[1 : places[0] if places else None]:
        command = getattr(command, "commands", {}).get(word, command)
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    return [words[place] for place in places if words[place].split("=")[0] not in known]


@pytest.mark.parametrize("page", living_documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_that_documents_give_them(page: Path) -> None:
    found = {" ".join(words): unknown_options(words) for words in commands_in(page.read_text(encoding="utf-8"))}
    assert {words: missing for words, missing in found.items() if missing} == {}


def test_an_option_of_another_command_is_noticed() -> None:
    text = "Use `secemb simulate --min-cohort 3`.\n\n```sh\nsecemb task create --epsilon 8 \\\n  --out x  # --no\n```\n"
    assert [unknown_options(words) for words in commands_in(text)] == [["--epsilon"], ["--min-cohort"]]


STAND_IN = """
class SummaryWriter:
    def __init__(self, folder):
        self.file = open("scalars.txt", "w")
    def __enter__(self):
        return self
    def __exit__(self, *raised):
        self.file.close()
    def add_scalar(self, name, value, step):
        assert isinstance(value, float) and isinstance(step, int)
        self.file.write(f"{name} {value!r} {step}\\n")
"""


@pytest.mark.parametrize("loss", ["squared", "bpr"])
def test_the_code_for_tensorboard_logs_every_figure_of_a_run(loss: str, tmp_path: Path) -> None:
    # TensorBoard is no dependency. Its writer is replaced by one that notes what it is told, called as torch says.
    (code,) = (block for language, block in _FENCED.findall(RESEARCH) if "SummaryWriter" in block)
    for package in ("torch", "torch/utils"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "torch" / "utils" / "tensorboard.py").write_text(STAND_IN)
    run = simulate(devices=20, cohort=8, items=60, rounds=4, evaluate_every=3, loss=loss, runs=tmp_path, name="one")
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "one",
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=True,
        timeout=60,
    )
    figure = "rmse" if loss == "squared" else "ndcg"
    told = [line.split() for line in (tmp_path / "one" / "scalars.txt").read_text().splitlines()]
    measured = [(row.figures[figure], row.round) for row in run.rows if figure in row.figures]
    assert len(measured) == 2
    assert [(float(value), int(step)) for name, value, step in told if name == figure] == measured
