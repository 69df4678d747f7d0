"""What an operator promises in a file becomes a task's settings, or is refused with what to change."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.commands import refused
from tests.e2e.servers import secemb
from tests.simulation.pair import a_task
from typer.testing import CliRunner

from secemb_party import accountant
from secemb_party.accountant import Terms, epsilon
from secemb_party.budget import lines_of
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.ring import Ring
from secemb_tools.cli.main import app
from secemb_tools.errors import OperationError
from secemb_tools.operate import check
from secemb_tools.operate.privacy import read_privacy
from secemb_tools.operate.task_files import read_task
from secemb_tools.operate.task_summary import describe_task, warning_of

RING = Ring(bits=32, fraction_bits=16)
WHOLE = """
unit = "record"
delta = 1e-6
sampling_rate = 0.05

[train]
clip = 1.5
dense_clip = 0.25
epsilon = 8
multiplier = 2.0

[survey]
clip = 100
epsilon = 0.5
multiplier = 30

[evaluate]
clip = 20
epsilon = 2.0
multiplier = 1.25
"""
SHORT = """
unit = "user"
delta = 1e-5
[train]
clip = 1
epsilon = 4
"""


def read(tmp_path: Path, text: str, *, rounds: int = 100) -> Privacy:
    """Write a file and read it."""
    path = tmp_path / "privacy.toml"
    path.write_text(text)
    return read_privacy(path, rounds=rounds, ring=RING)


def test_a_whole_file_says_what_it_says(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == Privacy(
        unit="record",
        delta="0.000001",
        sampling_rate="0.05",
        dense_clip=2**14,
        train=BudgetLine(clip=3 * 2**15, epsilon="8", multiplier="2"),
        survey=BudgetLine(clip=100 << 16, epsilon="0.5", multiplier="30"),
        evaluate=BudgetLine(clip=20 << 16, epsilon="2", multiplier="1.25"),
    )


def test_without_a_multiplier_all_rounds_fit_and_with_less_noise_they_would_not(tmp_path: Path) -> None:
    found = read(tmp_path, SHORT)
    assert (found.survey, found.evaluate, found.sampling_rate, found.dense_clip) == (None, None, "", 0)
    multiplier = float(found.train.multiplier)
    assert epsilon(Terms(multiplier=multiplier, delta=1e-5), 100) <= 4
    assert epsilon(Terms(multiplier=multiplier - 0.01, delta=1e-5), 100) > 4


def test_a_line_may_have_its_own_number_of_rounds(tmp_path: Path) -> None:
    lines = "[evaluate]\nclip = 1\nepsilon = 1\nrounds = 7\n[survey]\nclip = 1\nepsilon = 1\n"
    found = read(tmp_path, SHORT + lines)
    assert found.evaluate is not None
    assert found.survey is not None
    for line, rounds in ((found.evaluate, 7), (found.survey, 1)):
        terms = Terms(multiplier=float(line.multiplier), delta=1e-5)
        assert epsilon(terms, rounds) <= 1 < epsilon(terms, rounds + 1)


def test_a_clip_is_rounded_down_to_whole_steps(tmp_path: Path) -> None:
    assert read(tmp_path, SHORT.replace("clip = 1", "clip = 0.99999")).train.clip == 65535


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('unit = "user"', 'unit = "device"', "unit"),
        ("delta = 1e-5", "delta = 0", "delta"),
        ("delta = 1e-5", "", "delta: field required"),
        ("clip = 1", "clip = -1", "train.clip"),
        ("clip = 1", "clip = 0.00001", "--fraction-bits"),
        ("clip = 1", "length = 1", "train.length"),
        ("epsilon = 4", "epsilon = inf", "train.epsilon"),
        ("[train]", "[training]", "train: field required"),
        ("[train]", "[train", "is not TOML"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_what_to_change(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises((OperationError, ValueError), match=words):
        read(tmp_path, SHORT.replace(old, new))


TASK = ("--items", 60, "--width", 3, "--capacity", 6, "--cohort", 8, "--min-cohort", 2, "--clip", 4, "--rounds", 20)


def test_a_task_is_made_with_a_promise_and_says_what_it_costs(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text(SHORT)
    made = json.loads(
        secemb("task", "create", "--out", tmp_path / "t", *TASK, "--privacy", tmp_path / "privacy.toml", "--json")
    )
    assert "for each user" in made["privacy"]
    assert "train: ε 4 for 20 rounds" in made["privacy"]
    shown = json.loads(secemb("task", "show", tmp_path / "t" / "server0" / "task.json", "--json"))
    assert shown == made


def test_a_task_that_counts_on_chance_says_against_whom(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text("sampling_rate = 0.1\n" + SHORT)
    words = ("task", "create", "--out", tmp_path / "t", *TASK, "--privacy", tmp_path / "privacy.toml", "--json")
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    made = json.loads(done.stdout)
    line = lines_of(read_task(tmp_path / "t" / "server0" / "task.json"))["train"]
    known = epsilon(replace(line.terms, sampling_rate=None), 20)
    assert known > 4 * 4
    assert f"train: ε {known:.3g}, against anyone who knows which devices took part: server 0" in made["privacy_known"]
    assert "well above --min-cohort (2)" in done.stderr


def test_a_task_that_does_not_says_that_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text(SHORT)
    task = a_task(privacy=read(tmp_path, SHORT))
    assert describe_task(task)["privacy_known"] == "the same: no assumption about which devices take part"
    assert warning_of(task) is None


def test_a_budget_that_no_round_fits_into_makes_no_task(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text(SHORT + "multiplier = 0.3\n")
    said = refused("task", "create", "--out", tmp_path / "t", *TASK, "--privacy", tmp_path / "privacy.toml")
    assert "use a larger epsilon" in said
    assert not (tmp_path / "t").exists()


def test_a_check_says_what_a_task_promises_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    privacy = Privacy(unit="user", delta="0.1", train=BudgetLine(clip=128, epsilon="4", multiplier="2"))
    task = a_task(privacy=privacy)
    (finding,) = check._check_privacy(task)
    assert finding.status == "ok"
    assert "ε 4" in finding.text
    assert "devices took part" not in finding.text
    (finding,) = check._check_privacy(replace(task, privacy=replace(privacy, sampling_rate="0.5")))
    known = re.fullmatch(r".*does not know which devices took part, ε ([0-9.]+) against those who do", finding.text)
    assert known is not None
    assert float(known[1]) > 4
    (finding,) = check._check_privacy(
        replace(task, privacy=replace(privacy, train=replace(privacy.train, epsilon="0.0001")))
    )
    assert finding.status == "fail"
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    accountant._library.cache_clear()
    accountant.epsilon.cache_clear()
    accountant.epsilon_of_all.cache_clear()
    (finding,) = check._check_privacy(task)
    assert "pip install secemb[dp]" in finding.fix
    accountant._library.cache_clear()
    assert list(check._check_privacy(a_task())) == []
