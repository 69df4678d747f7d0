"""Commands that need no server: success, bad input with the fix and the exit code, and the shape of --json."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.cases_elsewhere import WITHOUT_JSON
from tests.e2e.commands import COMMANDS, RESULTS, json_of, read_json, refused, run
from tests.e2e.servers import Servers, set_up
from typer.testing import CliRunner

from secemb_tools.cli.main import app
from secemb_tools.cli.results import schema

ROOT = Path(__file__).parents[2]
SMALL = ("--devices", 12, "--cohort", 4, "--items", 60, "--rounds", 4)


def test_the_reference_in_docs_is_that_of_the_code(tmp_path: Path) -> None:
    """The Makefile's own command, with another place to write to."""
    reference, made = ROOT / "docs" / "reference", tmp_path / "cli.md"
    words = re.findall(r"(TYPER_USE_RICH=0) \$\(BIN\)/(typer .*) --output", (ROOT / "Makefile").read_text())[0][1]
    command = [sys.executable, "-m", *shlex.split(words), "--output", str(made)]
    variables = os.environ | {"TYPER_USE_RICH": "0"}
    subprocess.run(command, env=variables, capture_output=True, check=True)
    assert made.read_text(encoding="utf-8") == (reference / "cli.md").read_text(encoding="utf-8"), "run make docs"
    assert json.loads((reference / "cli.schema.json").read_text(encoding="utf-8")) == schema(), "run make docs"


def test_every_command_that_prints_has_json_with_a_documented_shape() -> None:
    with_json = {name for name, one in COMMANDS.items() if any("--json" in p.opts for p in one.params)}
    assert with_json == set(COMMANDS) - WITHOUT_JSON
    assert with_json == set(RESULTS)


def test_every_command_and_option_explains_itself() -> None:
    for name, command in COMMANDS.items():
        assert command.help, name
        assert all(getattr(one, "help", None) for one in command.params), name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_option_is_a_usage_error(name: str) -> None:
    assert "No such option" in refused(*name.split(), "--frobnicate", code=2)


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_completion_is_there_for(shell: str, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "secemb_tools"],
        env=os.environ | {"_SECEMB_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert word in done.stdout


def test_completion_knows_the_commands() -> None:
    variables = {"_SECEMB_COMPLETE": "complete_bash", "COMP_WORDS": "secemb si", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "secemb_tools"], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert "simulate" in done.stdout.split()


# Measuring and planning.


def test_the_kernel_names_itself() -> None:
    assert run("kernel").startswith("kernel: ")
    assert json_of("kernel")["kernel"] in ("native", "portable")


def test_a_plan_has_the_bytes_of_the_task_that_it_is_for(tmp_path: Path) -> None:
    found = json_of("plan", "--items", 400, "--capacity", 20, "--width", 9, "--seconds", 0.05)
    task = json_of(
        "task create",
        *("--items", 400, "--capacity", 20, "--width", 9, "--cohort", 100, "--min-cohort", 2, "--clip", 4),
        *("--out", tmp_path / "task"),
    )
    for name in ("bytes_up_per_device", "bytes_down_per_device", "slots", "loss_bound"):
        assert found[name] == task[name], name
    assert found["kernel_seconds_per_round"] == pytest.approx(100 * found["kernel_seconds_per_device"])
    assert "loss bound" in run("plan", "--catalogue", "ML100K", "--seconds", 0.05)


def test_a_plan_without_a_catalogue_is_refused() -> None:
    assert "--items and --capacity" in refused("plan")
    assert "ML1M" in refused("plan", "--catalogue", "ML2M")
    assert "at most --items" in refused("plan", "--items", 5, "--capacity", 6)
    assert "--cohort" in refused("plan", "--catalogue", "ML1M", "--cohort", 1, code=2)


# Settings.


@pytest.fixture
def pair(tmp_path: Path) -> Servers:
    return set_up(tmp_path / "pair", devices=1)


def test_settings_are_shown_with_their_origin_and_without_their_secrets(
    pair: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECEMB_LOGS__LEVEL", "debug")
    folder = pair.pair[0].folder
    rows = {row["setting"]: row for row in json_of("config show", "--config", folder)}
    assert rows["logs.level"] == {"setting": "logs.level", "value": "debug", "origin": "variable SECEMB_LOGS__LEVEL"}
    assert rows["role"]["origin"] == f"file {folder / 'secemb.toml'}"
    assert rows["devices.tls_cert"] == {"setting": "devices.tls_cert", "value": None, "origin": "default"}
    shown = run("config", "show", "--origin", "--config", folder)
    for secret in (folder / "secrets").iterdir():
        assert secret.read_text().strip() not in shown
    assert "secret, not shown" in shown
    assert "SECEMB_LOGS__LEVEL" in shown
    assert "SECEMB_LOGS__LEVEL" not in run("config", "show", "--config", folder)


def test_settings_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert "secemb init" in refused("config", "show", "--config", tmp_path)


def test_a_model_that_is_not_there_is_refused(pair: Servers) -> None:
    assert "start both servers first" in refused("model", "show", "--config", pair.pair[0].folder)
    assert "secemb model list" in refused("model", "show", 3, "--config", pair.pair[0].folder)


# Runs.


def test_a_run_is_kept_shown_listed_and_compared(tmp_path: Path) -> None:
    runs = ("--runs", tmp_path)
    # Else these follow from the ratings, and the ratings from the seed.
    small = (*SMALL, "--capacity", 40, "--centre", 3.5, "--spread", 1, "--row-pull", 10)
    made = json_of("simulate", *small, *runs, "--name", "one", "--compare", "plain")
    assert made["same_as_plain"] is True
    assert json_of("run show", "one", *runs)["table"] == made["table"]
    run("simulate", *small, *runs, "--name", "same")
    run("simulate", *small, *runs, "--name", "other", "--seed", 2)
    listed = json_of("run list", *runs)
    assert [row["name"] for row in listed] == ["one", "other", "same"]
    assert listed[0]["rmse"] == made["final"]["model"]["rmse"]["value"]
    assert listed[0]["biases"] == made["final"]["biases"]["rmse"]["value"]
    assert json_of("run compare", "one", "same", *runs)["same"] is True
    differing = json_of("run compare", "one", "other", *runs)
    assert differing["same"] is False
    assert differing["differences"] == {"seed": [1, 2]}
    assert "Identical, bit for bit." in run("run", "compare", "one", "same", *runs)
    assert "bit for bit" in run("run", "show", "one", *runs)
    assert (tmp_path / "one" / "plot.svg").read_text().startswith("<svg")


def test_a_damaged_run_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    for name in ("bad", "good", "worse"):
        run("simulate", *SMALL, "--runs", tmp_path, "--name", name)
    (tmp_path / "bad" / "run.json").write_text('{"format"')
    (tmp_path / "worse" / "run.json").write_bytes(b"\xff[]")
    done = CliRunner().invoke(app, ["run", "list", "--runs", str(tmp_path), "--json"], catch_exceptions=False)
    assert done.exit_code == 1
    assert [row["name"] for row in read_json(done.stdout)] == ["good"]
    for name in ("bad", "worse"):
        assert f"{tmp_path / name} contains no run that this version can read; remove it" in done.stderr


def test_a_run_that_cannot_be_is_refused(tmp_path: Path) -> None:
    runs = ("--runs", tmp_path)
    assert "no run found" in refused("run", "show", "none", *runs)
    assert "no run found" in refused("run", "compare", "none", "nor", *runs)
    run("simulate", *SMALL, *runs, "--name", "one")
    assert "another --name" in refused("simulate", *SMALL, *runs, "--name", "one", "--seed", 3)
    assert "--compare" in refused("simulate", *SMALL, *runs, "--name", "one", "--compare", "plain")
    assert "without a path" in refused("simulate", *SMALL, *runs, "--name", "../one")
    assert "choose one of mf" in refused("simulate", "--model", "svd", *runs)
    assert "secemb data fetch" in refused("simulate", "--data", tmp_path / "nothing", *runs)
    assert "--seed" in refused("simulate", "--seed", -1, *runs, code=2)


def test_a_simulation_that_is_interrupted_goes_on_to_the_same_table(tmp_path: Path) -> None:
    words = ["--devices", "20", "--cohort", "8", "--items", "60", "--rounds", "60", "--save-every", "1", "--json"]
    command = [sys.executable, "-m", "secemb_tools", "simulate", *words, "--runs", str(tmp_path), "--name", "cut"]
    # What runs in the background of a shell begins with interrupts ignored, and so would its children.
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    while not (tmp_path / "cut" / "state.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    kept = json_of("run show", "cut", "--runs", tmp_path)
    assert not kept["finished"]
    whole = json_of("simulate", *words[:-1], "--runs", tmp_path, "--name", "cut")
    assert whole["finished"]
    assert whole["table"][: len(kept["table"])] == kept["table"]
    assert whole["table"] == json_of("simulate", *words[:-1], "--runs", tmp_path, "--name", "at once")["table"]


# Data.


def test_a_csv_file_is_shown_split_and_simulated(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    lines = [f"{person},{item},{(person * item) % 5 + 1}" for person in range(8) for item in range(person, person + 12)]
    table.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    assert json_of("data show", table)["ratings"] == 96
    parts = json_of("data split", table, "--out", tmp_path / "parts", "--how", "leave-last-out")
    assert (parts["train"], parts["test"]) == (88, 8)
    assert "not be overwritten" in refused("data", "split", table, "--out", tmp_path / "parts")
    found = json_of("simulate", "--data", table, "--cohort", 4, "--rounds", 3, "--runs", tmp_path / "runs")
    assert found["scenario"]["devices"] == 8
    assert "8 people" in refused("simulate", "--data", table, "--devices", 9, "--runs", tmp_path / "runs")


def test_data_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "secemb data fetch" in refused("data", "show", tmp_path / "nothing")
    assert "secemb data fetch" in refused("data", "show", tmp_path)
    (tmp_path / "a.csv").write_text("hello\n")
    assert "user, item and rating" in refused("data", "show", tmp_path / "a.csv")
    assert "ml-1m" in refused("data", "fetch", "ml-2m")
    assert "--how" in refused("data", "split", tmp_path, "--out", tmp_path / "x", "--how", "sideways", code=2)


def test_the_readme_names_only_commands_that_exist() -> None:
    for file in ("README.md", *(f"docs/{name}.md" for name in ("quickstart", "tutorials/app", "tutorials/research"))):
        text = (ROOT / file).read_text(encoding="utf-8")
        for words in re.findall(r"^\s*(?:\.venv/bin/)?secemb ((?:[a-z]+ ?){1,2})", text, re.MULTILINE):
            first, *more = words.split()
            assert any(name == first or name.split()[:2] == [first, *more][:2] for name in COMMANDS), (file, words)
