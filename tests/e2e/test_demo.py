"""`secemb demo` in a small setting: what it shows, what it leaves behind, and that Ctrl-C ends it at any moment."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.commands import check_shape, read_json, refused
from tests.e2e.foreground import OWN, Running

from secemb_shared.messages import Sizes
from secemb_tools import simulate
from secemb_tools.simulation.scenario import ScenarioWorld, make_world

SMALL = ("--devices", "6", "--cohort", "3", "--rounds", "5", "--items", "60")
ROUND_LINE = re.compile(
    r"^(\d)/6 +(train|evaluate) +3 +3 +3 +0 +[\d.]+ +([\d.]+|-) +\d+ v(\d) [0-9a-f]{6} =$", re.MULTILINE
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running.start(tmp_path, "demo", *SMALL, "--out", str(tmp_path / "demo.html"), *words))
        return started[-1]

    yield begin
    for demo in started:
        demo.end()


class Page(HTMLParser):
    """What a page would fetch, and its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "action", "data", "srcset"}]


def test_the_demo_shows_every_round_stays_up_and_leaves_nothing_but_its_report(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    demo = start("--keep")
    demo.wait_until(lambda one: "keep running until Ctrl-C" in one.text())
    shown = demo.text()
    for url in set(re.findall(r"http://127\.0\.0\.1:\d+", shown)):
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    for leftover in (demo.files, demo.services, demo.ports):
        assert leftover(), "what a demonstration leaves behind would not be noticed"
    check_that_the_printed_program_takes_part(demo)
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(timeout=60) == 0
    kinds = [found[:2] for found in ROUND_LINE.findall(shown)]
    assert kinds == [*((str(number), "train") for number in range(1, 6)), ("6", "evaluate")]
    for words in ("ratings are made up", "user and item biases", "their device recommends"):
        assert words in " ".join(shown.split())
    for words in ("the same model, bit for bit", "operator token", "a device sends, relayed", "All checks passed"):
        assert words in shown
    assert "Note: " in shown, "what is not measured is said as such"
    demo.check_that_nothing_is_left()
    assert {path.name for path in tmp_path.iterdir()} == OWN | {"demo.html"}
    page = Page()
    page.feed((tmp_path / "demo.html").read_text())
    assert page.fetched == []
    assert "script" not in page.tags
    assert (page.tags.count("svg"), page.tags.count("table")) == (5, 4)


def check_that_the_printed_program_takes_part(demo: Running) -> None:
    """The task has rounds to go: a device takes part in the next one, and the demonstration's devices fill it."""
    printed = demo.run_printed_program()
    assert "round=6, kind='train'" in printed
    assert len(re.findall(r"score=\d+\.\d+, id='\d+', title='The [\w ]+'", printed)) == 5, "recommendations"
    demo.wait_until(lambda one: "round 6 train: 1 of yours, 2 helpers" in one.text())
    assert "version 6 published" in demo.text()


@pytest.mark.parametrize(("model", "seed"), [("mf", 7), ("ncf", 3)])
def test_over_http_and_in_process_the_same_seed_gives_the_same_table(
    model: str, seed: int, start: Callable[..., Running]
) -> None:
    demo = start("--json", "--seed", str(seed), "--model", model)
    assert demo.process.wait(timeout=120) == 0
    found: dict[str, Any] = read_json(demo.text())
    run = simulate(devices=6, cohort=3, rounds=5, items=60, seed=seed, model=model)
    assert found["table"] == run.table()
    assert found["task_id"] == run.task_id
    assert simulate(devices=6, cohort=3, rounds=5, items=60, seed=seed + 1, model=model).table() != run.table()
    assert (found["scenario"]["model"], found["transport"]) == (model, "relayed")
    names = ("rounds", "devices", "cohort", "items", "model", "seed")
    check_evidence(found, make_world(**{name: found["scenario"][name] for name in names}))
    check_the_person(found["person"])
    fewest, most = found["ratings_per_device"]
    assert fewest < most, "devices that differ are what the equal lengths are about"


@pytest.mark.parametrize("model", ["sasrec", "lm"])  # caser: in process, tests/integration/test_sequences.py
def test_events_and_words_over_http_give_the_table_of_the_plain_run_in_process(
    model: str, start: Callable[..., Running]
) -> None:
    demo = start("--json", "--seed", "5", "--model", model)
    assert demo.process.wait(timeout=120) == 0
    found: dict[str, Any] = read_json(demo.text())
    plain = simulate(devices=6, cohort=3, rounds=5, items=60, seed=5, model=model, way="plain")
    assert found["table"] == plain.table()
    assert found["same_as_plain"] is True
    assert found["baselines"] is None, "a mean of ratings says nothing about events"
    assert any("ndcg" in row["figures"] for row in found["table"])
    if model == "lm":
        assert found["person"] is None, "words have no ratings and no titles"
    else:
        check_the_person(found["person"])


def check_evidence(found: dict[str, Any], world: ScenarioWorld) -> None:
    """Compare what was measured on the servers' disks with what the task says."""
    check_shape("demo", found)
    assert found["format"] == "secemb/1 demo"
    assert found["good"] is True
    assert found["same_as_plain"] is True
    sizes, moved = Sizes.of(world.task), found["bytes_per_device"]
    assert [one["role"] for one in found["servers"]] == [0, 1]
    for one in found["servers"]:
        assert (one["sessions"], one["messages"], one["lengths"], one["repeated"]) == (18, 18, 1, 0)
        assert (one["keys_bytes"], one["update_bytes"]) == (sizes.keys, sizes.update[one["role"]])
        assert one["compressed"] > 0.95
        assert found["sum_compressed"] < one["share_compressed"]
    relayed = found["transport"] == "relayed"
    assert 0 <= moved["sent"] - (sizes.relayed_upload if relayed else sizes.upload) < 500
    assert found["baselines"]["ratings"] == found["rounds"][5]["figures"]["predictions"], "on the same ratings"
    assert 0 < found["baselines"]["biases"] < 2
    assert 0 < found["baselines"]["global_mean"] < 2


def check_the_person(person: dict[str, Any]) -> None:
    liked, found = person["liked"], person["recommended"]
    assert len(liked) == len(found) == 5
    assert all(one["title"].startswith("The ") for one in liked + found)
    assert not {one["item"] for one in liked} & {one["item"] for one in found}, "what is rated is not recommended"
    assert [one["rating"] for one in found] == sorted((one["rating"] for one in found), reverse=True)


def test_ratings_of_ones_own_are_shown_in_a_demo_by_the_direct_transport_too(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    table = tmp_path / "mine.csv"
    rows = [f"{person},{item},{(person * item) % 5 + 1}" for person in range(8) for item in range(person, person + 12)]
    table.write_text("\n".join(["user,item,rating", *rows]) + "\n")
    demo = start("--data", str(table), "--json", "--transport", "direct")
    assert demo.process.wait(timeout=120) == 0
    found = read_json(demo.text())
    assert (found["scenario"]["data"], found["scenario"]["items"]) == ("mine", 19)
    assert found["ratings_per_device"] == [12, 12]
    assert found["table"] == simulate(data=table, devices=6, cohort=3, rounds=5).table()
    assert found["transport"] == "direct"
    check_evidence(found, make_world(devices=6, cohort=3, rounds=5, data=table))


# In the order in which they come: what is under way is another thing each time.
MOMENTS: dict[str, Callable[[Running], bool]] = {
    "it is being loaded": lambda _: True,
    "it has said what comes": lambda demo: "must not collude" in demo.text(),
    "its folder is made": lambda demo: any(demo.folder.iterdir()),
    "the servers are being paired": lambda demo: any(demo.folder.glob("*/0.pair.json")),
    "a service starts": lambda demo: bool(demo.services()),
    "both servers are up": lambda demo: "server 1  http" in demo.text(),
    "a device has begun": lambda demo: any(demo.folder.glob("*/devices/*")),
    "a round has ended": lambda demo: "\n1/6 " in demo.text(),
    "the last round has ended": lambda demo: "\n6/6 " in demo.text(),
    "the tables are printed": lambda demo: "RMSE at the end" in demo.text(),
    "the report is being written": lambda demo: demo.report.exists(),
}
BEFORE_ANYTHING = "it is being loaded"
PYTHON_STARTS = "init_import_site: Failed to import the site module"  # it ends with 1 if it is interrupted there
USUAL = (
    *(BEFORE_ANYTHING, "the servers are being paired", "a service starts"),
    *("a round has ended", "the report is being written"),
)
AT_THE_END = ("the last round has ended", "the tables are printed", "the report is being written")


@pytest.mark.parametrize("moment", MOMENTS if os.environ.get("SOAK_TESTS") else USUAL)
def test_ctrl_c_cleans_up_and_a_second_one_does_not_disturb_that_when(
    moment: str, start: Callable[..., Running]
) -> None:
    demo = start()
    demo.wait_until(MOMENTS[moment], may_end=moment in AT_THE_END)
    for _ in range(3):
        demo.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    codes = {130}
    if moment == BEFORE_ANYTHING:
        codes.add(-signal.SIGINT)  # Python itself is ended
    elif moment in AT_THE_END:
        codes.add(0)  # it was faster
    code = demo.process.wait(timeout=60)
    assert code in codes or (moment == BEFORE_ANYTHING and PYTHON_STARTS in demo.errors()), demo.errors()
    demo.check_that_nothing_is_left()
    assert {path.name for path in demo.report.parent.iterdir()} - {"demo.html"} == OWN
    assert demo.report.exists() == ("report in" in demo.text() or moment == "the report is being written")


def test_services_do_not_outlive_a_demo_that_is_killed(start: Callable[..., Running]) -> None:
    demo = start()
    demo.wait_until(MOMENTS["both servers are up"])
    assert len(demo.services()) == 2
    demo.process.kill()
    demo.process.wait()
    end = time.monotonic() + 30
    while demo.services():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_that_dies_ends_the_demo_with_its_last_words(start: Callable[..., Running], tmp_path: Path) -> None:
    demo = start()
    demo.wait_until(MOMENTS["a round has ended"])
    os.kill(demo.services()[0], signal.SIGKILL)
    assert demo.process.wait(timeout=60) == 1
    words = (tmp_path / "errors.txt").read_text()
    assert "stopped unexpectedly: killed by signal 9" in words
    assert '"level": "info"' not in words
    demo.check_that_nothing_is_left()


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (("--devices", 6, "--cohort", 7), 1, "at most the number of devices"),
        (("--model", "svd"), 1, "choose one of mf, ncf, fm, deepfm"),
        (("--data", "nowhere"), 1, "secemb data fetch"),
        (("--rounds", 0), 2, "--rounds"),
        ((*SMALL, "--out", "/dev/null/demo.html"), 1, "choose another --out"),
        ((*SMALL, "--out", "/"), 1, "use --out"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_fix(words: tuple[object, ...], code: int, fix: str) -> None:
    assert fix in refused("demo", *words, code=code)
