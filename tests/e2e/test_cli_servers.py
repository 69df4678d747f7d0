"""Commands that talk to two running servers: status, the model's versions, and devices on the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.commands import check_shape, json_of, refused, run
from tests.e2e.place import RUNNING
from tests.e2e.servers import wait_for
from typer.testing import CliRunner

from secemb_tools.cli.main import app
from secemb_tools.local import Pair
from secemb_tools.local.process import free_ports


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"), RUNNING)
    with made.running():
        yield made


@pytest.fixture
def operators(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Put both operators' tokens where commands find them, and return how to name both servers."""
    monkeypatch.setenv("OPERATOR_TOKEN", " ".join(server.operator_token for server in pair.servers))
    return "--server", pair.servers[0].operator_url, "--server", pair.servers[1].operator_url


@pytest.fixture(scope="module")
def homes(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make two devices with ratings."""
    folder = tmp_path_factory.mktemp("homes")
    ratings = folder / "ratings.csv"
    ratings.write_text("item,rating\n3,5\n17,1\n90,4\n")
    made = [folder / "one", folder / "two"]
    for home in made:
        facts = json_of("device join", home, *to(pair), "--ratings", ratings)
        assert (facts["items"], facts["ratings"]) == (200, 3)
    return made


def to(pair: Pair) -> tuple[object, ...]:
    return "--server0", pair.urls[0], "--server1", pair.urls[1], "--task", pair.task.task_id.hex()


def take_part(homes: list[Path]) -> list[dict[str, Any]]:
    """Let both devices take part in one round, one in a process of its own, and return what they said last."""
    command = [sys.executable, "-m", "secemb_tools", "device", "loop", str(homes[0]), "--rounds", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        mine = take_part_once(homes[1])
        said = other.communicate(timeout=120)[0].splitlines()
    assert other.returncode == 0
    theirs = [json.loads(line) for line in said]
    for one in theirs:
        check_shape("device loop", one)
    return [with_all_settled(theirs), mine]


def with_all_settled(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the last call said, with the news of the calls before it, which found no round."""
    return calls[-1] | {"settled": [one for call in calls for one in call["settled"]]}


def take_part_once(home: Path) -> dict[str, Any]:
    """Call until there is a round to take part in; a call that found none ends with 1."""
    calls: list[dict[str, Any]] = []
    for _ in range(20):
        done = CliRunner().invoke(app, ["device", "once", str(home), "--json"], catch_exceptions=False)
        found: dict[str, Any] = json.loads(done.stdout)
        check_shape("device once", found)
        assert done.exit_code == (0 if found["outcome"] == "contributed" else 1)
        calls.append(found)
        if done.exit_code == 0:
            return with_all_settled(calls)
    raise AssertionError("no round in twenty calls")


def published(pair: Pair, *, at_least: int = 0) -> int:
    """Return the version that both servers show, once it is so many."""
    seen: list[int] = []

    def agree() -> bool:
        seen[:] = [int(server.ask("overview")["model_version"]) for server in pair.servers]
        return seen[0] == seen[1] >= at_least

    wait_for(f"both servers publish version {at_least}", agree)
    return seen[0]


def test_devices_take_part_and_the_model_goes_on_and_back(
    pair: Pair, homes: list[Path], operators: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[dict[str, Any]] = []
    for _ in range(3):  # the two may meet the end of a round
        outcomes = take_part(homes)
        if outcomes[0]["round"] == outcomes[1]["round"]:
            break
    assert {one["outcome"] for one in outcomes} == {"contributed"}
    assert outcomes[0]["sent"] == outcomes[1]["sent"]
    version = published(pair, at_least=1)
    for one in take_part(homes):  # what became of a round is told in the next call
        assert (outcomes[0]["round"], True) in {(past["round"], past["published"]) for past in one["settled"]}
    version = published(pair, at_least=version + 1)
    assert json_of("status", *operators)["digests_equal"] is True
    assert json_of("model show", "--config", pair.servers[1].folder)["version"] == version
    best = json_of("device recommend", homes[0], "-k", 5)
    assert len(best) == 5
    assert not {3, 17, 90} & {row["item"] for row in best}
    monkeypatch.setenv("OPERATOR_TOKEN", pair.servers[0].operator_token)
    run("model", "rollback", 0, "--server", pair.servers[0].operator_url, code=1, typed="n\n")
    assert published(pair) == version
    back = json_of("model rollback", 0, "--server", pair.servers[0].operator_url, "--yes")
    assert (back["state"], back["made"]) == ("done", version + 1)
    assert "refuses" in refused("model", "rollback", 99, "--server", pair.servers[0].operator_url, "--yes")


def test_status_shows_both_servers_and_can_be_watched(
    pair: Pair, operators: tuple[object, ...], tmp_path: Path
) -> None:
    published(pair)
    shown = run("status", *operators)
    for words in ("server 0", "server 1", "commands", "joined", "the models match"):
        assert words in shown
    found = json_of("status", *operators)
    assert [one["role"] for one in found["servers"]] == [0, 1]
    assert found["same_task"] is True
    lines = run("status", *operators, "--watch", "--times", 2, "--every", 0.1, "--json").splitlines()
    assert len(lines) == 2
    for line in lines:
        check_shape("status", json.loads(line))
    assert run("status", *operators, "--watch", "--times", 3, "--every", 0.1).count("the models match") == 3
    file = tmp_path / "token"
    file.write_text(pair.servers[1].operator_token + "\n")
    alone = json_of("status", "--server", pair.servers[1].operator_url, "--token-file", file)
    assert alone["digests_equal"] is None


def test_status_without_the_right_token_or_server_is_refused_with_the_fix(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPERATOR_TOKEN", raising=False)
    assert "--token-file" in refused("status", "--server", pair.servers[0].operator_url)
    monkeypatch.setenv("OPERATOR_TOKEN", "wrong")
    assert "secemb operator list" in refused("status", "--server", pair.servers[0].operator_url)
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert "the server is running" in refused("status", "--server", nobody)
    assert "http://host:port" in refused("status", "--server", "zero")
    assert "tokens are needed" in refused(
        "status", "--server", pair.servers[0].operator_url, "--server", pair.servers[1].operator_url
    )
    assert "No such file" in refused(
        "status", "--server", pair.servers[0].operator_url, "--token-file", tmp_path / "none"
    )


def test_a_server_that_does_not_answer_hides_nothing_of_the_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_TOKEN", f"{pair.servers[0].operator_token} any")
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    shown = run("status", "--server", pair.servers[0].operator_url, "--server", nobody, code=1)
    assert "trained" in shown
    assert "the server is running" in shown


def test_only_server_0_rolls_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_TOKEN", pair.servers[1].operator_token)
    assert "server 0 controls" in refused("model", "rollback", 0, "--server", pair.servers[1].operator_url, "--yes")


def test_a_device_that_cannot_be_is_refused(pair: Pair, homes: list[Path], tmp_path: Path) -> None:
    assert "secemb device join" in refused("device", "once", tmp_path / "none")
    assert "secemb device join" in refused("device", "loop", tmp_path / "none")
    assert "secemb device join" in refused("device", "recommend", tmp_path / "none")
    assert "already" in refused("device", "join", homes[0], *to(pair))
    other = tmp_path / "other"
    assert "check the task id" in refused("device", "join", other, *to(pair)[:-1], "0" * 64)
    assert "64" in refused("device", "join", other, *to(pair)[:-1], "x")
    assert "https://" in refused("device", "join", other, "--server0", "http://a.example", *to(pair)[2:])
    (tmp_path / "bad.csv").write_text("1,5\n2,five\n")
    words = refused("device", "join", other, *to(pair), "--ratings", tmp_path / "bad.csv")
    assert "line 2" in words
    assert "five" not in words
    assert not other.exists()


def test_what_a_device_remembers_is_for_its_owner_alone(pair: Pair, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    home = tmp_path / "home"
    assert "secret-token" not in run("device", "join", home, *to(pair), "--token-file", token)
    assert json.loads((home / "command.json").read_text())["token"] == "secret-token"
    assert (home / "command.json").stat().st_mode & 0o077 == 0
