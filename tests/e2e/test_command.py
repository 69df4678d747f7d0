"""The commands as people type them, in a process of their own."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.e2e.commands import check_shape, read_json

from secemb_lab.bench import device_models
from secemb_sdk.models import registry

LAB = Path(__file__).parents[2] / "lab"


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(LAB)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_the_kernel_line_names_what_does_the_work() -> None:
    line = run("secemb_tools", "kernel").stdout
    assert line.startswith(("kernel: native (", "kernel: portable, "))
    assert line.count("\n") == 1


def test_the_version_is_that_of_the_package() -> None:
    assert run("secemb_tools", "--version").stdout == f"secemb {version('secemb')}\n"


def test_the_benchmark_writes_every_figure_it_prints(tmp_path: Path) -> None:
    output = tmp_path / "figures" / "bench.json"
    short = ("--seconds", "0.01", "--catalogue", "ML100K", "--model", "mf", "--model", "ncf")
    done = run("secemb_lab", "bench", *short, "--output", str(output), "--json")
    assert done.returncode == 0, done.stderr
    figures = read_json(output.read_text())
    assert read_json(done.stdout) == figures
    check_shape("bench", figures)
    assert {row["construction"] for row in figures["catalogues"]} == {
        "SecEmb-Init, direct",
        "SecEmb-RowEnc, direct",
        "SecEmb, direct",
        "SecEmb, binned",
        "full matrix",
    }
    assert figures["kernel"]["operations"]
    assert figures["noise"][-1]["backend"] == "portable"
    assert {row["backend"] for row in figures["noise"]} <= {"kernel", "portable"}
    for row in figures["noise"]:
        assert f"noise, {row['backend']}: {row['seconds']:.2f} s for 10^7 numbers" in done.stderr
    goals = [bar for bar in figures["bars"] if bar["name"].startswith("noise")]
    assert [bar["measured"] for bar in goals] == [row["seconds"] for row in figures["noise"][:-1]]
    assert [row["model"] for row in figures["devices"]] == ["MF", "NCF"]
    assert device_models.names() == registry.names(), "without --model it measures all"
    assert all(bar["name"].split(",")[0] in done.stderr for bar in figures["bars"])


def test_an_unknown_catalogue_is_refused_with_the_known_ones() -> None:
    done = run("secemb_lab", "bench", "--catalogue", "ML2M")
    assert done.returncode == 2
    assert "ML1M" in done.stderr


LATER = "import secemb_tools.cli.main as line; line.main = lambda: __import__('torch'); "  # as some commands do


ENTRIES = {
    "secemb": "from secemb_tools.__main__ import main; main()",
    "python -m secemb_tools": "import runpy; runpy.run_module('secemb_tools', run_name='__main__')",
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("missing", "extra", "before"), [("typer", "tools,server", ""), ("torch", "train", LATER)])
def test_where_an_extra_is_missing_one_line_names_it(missing: str, extra: str, before: str, entry: str) -> None:
    """As in the base install, which has the command but not what it is made of."""
    program = f"import sys; sys.modules[{missing!r}] = None; {before}{ENTRIES[entry]}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"this needs {missing}, which is not installed: pip install 'secemb[{extra}]'\n"


LOADED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "secemb_tools.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("entry", ENTRIES)
def test_ctrl_c_while_it_is_being_loaded_ends_it_without_a_traceback(entry: str) -> None:
    program = LOADED + ENTRIES[entry]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
