"""`secemb demo` in a small setting: what it shows, what it leaves behind, and that Ctrl-C ends it at any moment."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.commands import check_shape, refused

from secemb_tools import simulate

SMALL = ("--devices", "6", "--cohort", "3", "--rounds", "4", "--items", "60")
ROUND_LINE = re.compile(
    r"round (\d) \(\d/4\) (train|evaluate): 3 retrieved, 3 uploaded, 3 matched, 0 dropped, [\d.]+ s, "
    r"fleet RMSE ([\d.]+|-), \d+ kB a device, model (\d), digests equal"
)


@dataclass
class Demo:
    """A demonstration that runs, with its own place for temporary files."""

    process: subprocess.Popen[str]
    folder: Path
    output: Path

    def text(self) -> str:
        return self.output.read_text()

    def wait_until(self, holds: Callable[["Demo"], bool]) -> None:
        end = time.monotonic() + 60
        while not holds(self):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, self.text()
            time.sleep(0.005)

    def services(self) -> list[int]:
        """Return the processes that serve something below this demonstration's folder."""
        return [pid for pid, words in command_lines() if str(self.folder) in words]

    def check_that_nothing_is_left(self) -> None:
        assert list(self.folder.iterdir()) == []
        assert self.services() == []
        for port in map(int, re.findall(r"http://127\.0\.0\.1:(\d+)", self.text())):
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0


def command_lines() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_bytes().decode(errors="replace")
        except OSError:
            continue


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def begin(*words: str) -> Demo:
        folder, output = tmp_path / "temporary", tmp_path / "output.txt"
        folder.mkdir()
        command = [sys.executable, "-m", "secemb_tools", "demo", *SMALL, "--out", str(tmp_path / "demo.html"), *words]
        with output.open("w") as file, (tmp_path / "errors.txt").open("w") as errors:
            variables = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(command, stdout=file, stderr=errors, text=True, env=variables)
        started.append(Demo(process, folder, output))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()


class Page(HTMLParser):
    """What a page would fetch, and its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "action", "data", "srcset"}]


def test_the_demo_shows_every_round_stays_up_when_asked_and_leaves_nothing_but_its_report(
    start: Callable[..., Demo], tmp_path: Path
) -> None:
    demo = start("--keep")
    demo.wait_until(lambda one: "stay up until Ctrl-C" in one.text())
    shown = demo.text()
    for url in set(re.findall(r"http://127\.0\.0\.1:\d+", shown)):
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(timeout=60) == 0
    kinds = [found[:2] for found in ROUND_LINE.findall(shown)]
    assert kinds == [("0", "train"), ("1", "train"), ("2", "evaluate"), ("3", "train")]
    for words in ("the same model, bit for bit", "operator token", "a device sends", "All as it must be"):
        assert words in shown
    demo.check_that_nothing_is_left()
    assert {path.name for path in tmp_path.iterdir()} == {"temporary", "output.txt", "errors.txt", "demo.html"}
    page = Page()
    page.feed((tmp_path / "demo.html").read_text())
    assert page.fetched == []
    assert "script" not in page.tags
    assert (page.tags.count("svg"), page.tags.count("table")) == (3, 3)


def test_over_http_and_in_process_the_same_seed_gives_the_same_table(start: Callable[..., Demo]) -> None:
    demo = start("--json", "--seed", "7")
    assert demo.process.wait(timeout=120) == 0
    found: dict[str, Any] = json.loads(demo.text())
    run = simulate(devices=6, cohort=3, rounds=4, items=60, seed=7)
    assert found["table"] == run.table()
    assert found["task_id"] == run.task_id
    assert simulate(devices=6, cohort=3, rounds=4, items=60, seed=8).table() != run.table()
    check_shape("demo", found)
    assert found["format"] == "secemb/1 demo"
    assert found["good"] is True
    assert found["same_as_plain"] is True
    assert {"sent", "received", "full_sent", "full_received"} == set(found["bytes_per_device"])
    assert [one["role"] for one in found["servers"]] == [0, 1]
    assert all(one["lengths"] == 1 for one in found["servers"])


MOMENTS: dict[str, Callable[[Demo], bool]] = {
    "its folder is made": lambda demo: any(demo.folder.iterdir()),
    "a service starts": lambda demo: bool(demo.services()),
    "a round has ended": lambda demo: "(1/4)" in demo.text(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_cleans_up_and_a_second_one_does_not_disturb_that_when(moment: str, start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_until(MOMENTS[moment])
    for _ in range(3):
        demo.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    assert demo.process.wait(timeout=60) == 130
    demo.check_that_nothing_is_left()


def test_services_do_not_outlive_a_demo_that_is_killed(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_until(lambda one: "server 1" in one.text())
    assert len(demo.services()) == 2
    demo.process.kill()
    demo.process.wait()
    end = time.monotonic() + 30
    while demo.services():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_that_dies_ends_the_demo_with_its_last_words(start: Callable[..., Demo], tmp_path: Path) -> None:
    demo = start()
    demo.wait_until(MOMENTS["a round has ended"])
    os.kill(demo.services()[0], signal.SIGKILL)
    assert demo.process.wait(timeout=60) == 1
    assert "has ended by itself" in (tmp_path / "errors.txt").read_text()
    demo.check_that_nothing_is_left()


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (("--devices", 6, "--cohort", 7), 1, "at most as many as there are"),
        (("--model", "svd"), 1, "there are mf, ncf, fm, deepfm"),
        (("--data", "nowhere"), 1, "secemb data fetch"),
        (("--rounds", 0), 2, "--rounds"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_fix(words: tuple[object, ...], code: int, fix: str) -> None:
    assert fix in refused("demo", *words, code=code)
