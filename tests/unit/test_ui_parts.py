"""The parts of the operator's page that need no server: sessions, wording, rates, files of others."""

import hashlib
import re
from pathlib import Path

import pytest

from secemb_party.metrics import Metrics
from secemb_party.ui import format, login_sessions, render
from secemb_party.ui.login_sessions import LoginLimit, Sessions
from secemb_party.ui.render import PAGES
from secemb_party.ui.server_facts import Surroundings
from secemb_party.ui.views.measurements import Figures, Throughput

STATIC = Path(render.__file__).parent / "static"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_over_after_eight_hours_and_not_before() -> None:
    clock = Clock()
    opened = Sessions(clock)
    cookie = opened.open("alice", changes=True)
    clock.now += 8 * 3600 - 1
    assert opened.find(cookie) is not None
    clock.now += 1
    assert opened.find(cookie) is None


def test_a_session_that_was_closed_or_guessed_is_none() -> None:
    opened = Sessions()
    cookie = opened.open("alice", changes=True)
    assert opened.find("") is opened.find(cookie[:-1]) is None
    opened.close(cookie)
    assert opened.find(cookie) is None


def test_no_two_sessions_share_a_cookie_or_a_form_token_and_neither_is_shown() -> None:
    opened = Sessions()
    cookies = {opened.open("alice", changes=True) for _ in range(20)}
    tokens = {found.form_token for cookie in cookies if (found := opened.find(cookie)) is not None}
    assert len(cookies) == len(tokens) == 20
    found = opened.find(next(iter(cookies)))
    assert found is not None
    assert found.form_token not in repr(found)
    assert found.allows(found.form_token)
    assert not found.allows("")
    assert not found.allows("ä")


def test_beyond_the_most_sessions_the_oldest_goes() -> None:
    opened = Sessions()
    cookies = [opened.open("alice", changes=True) for _ in range(login_sessions.MOST_SESSIONS + 1)]
    assert opened.find(cookies[0]) is None
    assert opened.find(cookies[1]) is not None


def test_ten_wrong_tries_a_minute_are_enough() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    for _ in range(login_sessions.WRONG_TRIES):
        assert limit.seconds_to_wait() == 0
        limit.count_wrong()
        clock.now += 1
    assert limit.seconds_to_wait() == 50
    clock.now += 50
    assert limit.seconds_to_wait() == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.0004, "0.40 ms"),
        (0.25, "250 ms"),
        (9.5, "9.5 s"),
        (59.6, "1 min"),
        (83, "1 min 23 s"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
        (50 * 86_400 + 4000, "50 d"),
    ],
)
def test_a_duration_has_the_units_that_matter(seconds: float | None, words: str) -> None:
    assert format.duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1.0 MB"), (2e11, "200 GB")],
)
def test_a_size_has_a_unit_that_keeps_it_short(count: float | None, words: str) -> None:
    assert format.size(count) == words


def test_a_moment_is_said_in_both_ways() -> None:
    now = 1_800_000_000.0  # 15 January 2027, 08:00 UTC
    assert format.moment(now - 125, now) == (
        '<time datetime="2027-01-15T07:57:55+00:00">07:57:55 <span class="quiet">2 min 5 s ago</span></time>'
    )
    assert "14 Jan 08:00" in format.moment(now - 86_400, now)
    assert "in 20 s" in format.moment(now + 20, now)
    assert "–" in format.moment(None, now)


def test_a_digest_is_in_groups_of_four() -> None:
    assert ">abab abab<" in format.digest(b"\xab" * 4)
    assert ">abab…<" in format.digest("ab" * 4, groups=1)
    assert "&lt;" in format.digest("<b>")  # what is no digest is still no tag


def test_rates_are_differences_between_two_looks() -> None:
    clock, metrics = Clock(), Metrics()
    throughput = Throughput(clock)
    clock.now += 10
    metrics.moved(received=1000, sent=0)
    first = throughput.measure(Figures(metrics))
    assert (first.received, first.since_start) == (100, True)
    clock.now += 5
    metrics.moved(received=50, sent=500)
    metrics.session("update", 10)
    second = throughput.measure(Figures(metrics))
    assert (second.received, second.sent, second.updates, second.since_start) == (10, 100, 2, False)


def test_certificates_that_cannot_be_read_are_named_and_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "broken.crt").write_text("no certificate")
    files = (("broken", tmp_path / "broken.crt"), ("missing", tmp_path / "missing.crt"))
    found = Surroundings(certificate_files=files).certificates()
    assert [(one.name, one.ends_at, one.days_left(0)) for one in found] == [
        ("broken", None, None),
        ("missing", None, None),
    ]


def test_the_disk_is_told_by_what_lies_on_it(tmp_path: Path) -> None:
    (tmp_path / "models" / "task").mkdir(parents=True)
    (tmp_path / "models" / "task" / "v000000.safetensors").write_bytes(bytes(100))
    (tmp_path / "ledger.db").write_bytes(bytes(10))
    (tmp_path / "ledger.db-wal").write_bytes(bytes(5))
    disk = Surroundings(data_dir=tmp_path).disk()
    assert disk is not None
    assert (disk.models, disk.shares, disk.ledger) == (100, 0, 15)
    assert 0 < disk.free <= disk.whole


def test_files_of_others_are_unchanged_and_have_their_licences() -> None:
    listed = re.findall(r"\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|", (STATIC / "vendor" / "README.md").read_text())
    assert {name: hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() for name, _ in listed} == dict(
        listed
    )
    found = {str(path.relative_to(STATIC / "vendor")) for path in (STATIC / "vendor").glob("*/*")}
    assert found == {name for name, _ in listed} | {f"{name.split('/')[0]}/LICENSE" for name, _ in listed}


def test_our_scripts_and_templates_name_no_other_host() -> None:
    for path in (*STATIC.glob("*.*"), *(STATIC.parent / "templates").iterdir()):
        for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", path.read_text()):
            assert address == "http://www.w3.org/2000/svg", path.name


def test_the_operators_guide_tells_of_every_page_in_their_order() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
    table = guide.partition("## The operator's page")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\w+) \| (?!what)", table, re.M) == [name for name, _ in PAGES]
