"""`secemb dev` as an app developer uses it: what it prints is enough for a device, and Ctrl-C ends everything."""

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.commands import check_shape, read_json, refused, run
from tests.e2e.foreground import OWN, Running

from secemb_sdk import BlockingDevice, Contributed, Device, Ended, EnrolmentError, Policy

SMALL = ("--items", "60", "--cohort", "3", "--warm-up", "2")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running.start(tmp_path, "dev", *SMALL, *words))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def end(dev: Running) -> None:
    """Press Ctrl-C: the usual end, after which nothing is left."""
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(timeout=60) == 0
    dev.check_that_nothing_is_left()
    assert {path.name for path in dev.output.parent.iterdir()} == OWN


def take_part(device: BlockingDevice) -> Contributed:
    limit = time.monotonic() + 60
    while not isinstance(outcome := device.contribute(), Contributed):
        assert not isinstance(outcome, Ended), outcome
        assert time.monotonic() < limit, outcome
        time.sleep(min(outcome.seconds, 0.2))
    return outcome


def newest_round(facts: dict[str, Any]) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {facts['operator_tokens'][0]}"}
    answer = httpx.get(f"{facts['operators'][0]}/v1/operator/rounds?limit=1", headers=headers, trust_env=False)
    found: dict[str, Any] = answer.raise_for_status().json()[0]
    return found


def check_the_task(facts: dict[str, Any]) -> None:
    """It has rounds for days, and a device that has joined and does not return delays others by 90 seconds at most."""
    url = f"{facts['servers'][0]}/v1/tasks/{facts['task_id']}"
    spec = json.loads(httpx.get(url, trust_env=False).raise_for_status().json()["task"])
    assert spec["rounds"] >= 1_000_000
    assert spec["join_seconds"] < spec["upload_seconds"] <= 90


def test_one_device_takes_part_in_round_after_round_with_what_is_printed_as_json(start: Callable[..., Running]) -> None:
    dev = start("--json")
    dev.wait_until(lambda one: is_json(one.text()))
    facts = read_json(dev.text())
    check_shape("dev", facts)
    check_the_task(facts)
    time.sleep(1)
    assert (newest_round(facts)["number"], newest_round(facts)["admitted"]) == (2, 0), "helpers wait for a device"
    homes = Path(facts["program"]).parent
    opening = {"servers": tuple(facts["servers"]), "task": facts["task_id"], "policy": Policy(pace_seconds=0)}
    with Device.open_blocking(home=homes / "mine", token=facts["token"], **opening) as device:
        device.log_many({1: 5.0, 2: 4.0, 3: 1.0})
        for number in (2, 3):
            outcome = take_part(device)
            assert (outcome.receipt.round, outcome.receipt.kind, outcome.trouble) == (number, "train", None)
            words = f"round {number} train: 1 of yours, 2 helpers"
            dev.wait_until(lambda one, words=words: words in one.errors())  # type: ignore[misc]
        best = device.recommend(k=5)
        assert len(best) == 5
        assert not {1, 2, 3} & {one.item for one in best}
    with (
        Device.open_blocking(home=homes / "other", token="another", **opening) as device,
        pytest.raises(EnrolmentError),
    ):
        device.contribute()
    end(dev)


def test_the_printed_program_and_the_printed_commands_work_as_they_are(start: Callable[..., Running]) -> None:
    dev = start("--tls")
    dev.wait_until(lambda one: "Press Ctrl-C" in one.text())
    assert (next(dev.folder.iterdir()) / "device.py").read_text() in dev.text()
    printed = dev.run_printed_program()
    assert "complete=True" in printed
    assert len(re.findall(r"score=\d+\.\d+, id='\d+', title='The [\w ]+'", printed)) == 5, "recommendations"
    dev.wait_until(lambda one: "round 2 train: 1 of yours, 2 helpers" in one.text())
    commands = re.findall(r"^  (curl .*)$", dev.text(), re.M)
    assert len(commands) == 2
    for command in commands:
        subprocess.run(f"{command} --fail --silent --noproxy '*'", shell=True, check=True, timeout=30)
    (join,) = re.findall(r"^  secemb (device join .*)$", dev.text(), re.M)
    words = join.split()
    assert words[-2] == "--ca"
    assert "unknown authority" in refused(*words[:-2])
    assert "task id" in run(*words)
    end(dev)


@pytest.mark.parametrize(("model", "logs"), [("ncf", "log_many"), ("fm", "log_many"), ("sasrec", "log_events")])
def test_the_program_builds_the_model_that_the_task_trains(
    model: str, logs: str, start: Callable[..., Running]
) -> None:
    dev = start("--model", model, "--json")
    dev.wait_until(lambda one: is_json(one.text()))
    printed = dev.run_printed_program()
    assert "complete=True" in printed
    assert f"device.{logs}(" in Path(read_json(dev.text())["program"]).read_text()
    end(dev)


def test_a_port_that_is_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused("dev", "--port", port - 6 if port > 65529 else port)
