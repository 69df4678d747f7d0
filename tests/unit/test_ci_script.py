"""The script that decides about a merge: it sees a demonstration that shows too little or leaves something behind."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
ROUNDS = "".join(
    f"{number}/6     train        3     3       3       0     0.4     -   11 v1 103362 =\n" for number in range(1, 7)
)
GOOD = ROUNDS + "All checks passed\n"
LEFT_RUNNING = (
    'mkdir "$TMPDIR/secemb-demo-x"; '
    """bash -c 'exec -a "$0" sleep 60' "$TMPDIR/secemb-demo-x/server0" >/dev/null 2>&1 & echo $! >build/pid; """
    "until grep -qs secemb-demo-x/server0 /proc/$!/cmdline; do sleep 0.05; done"  # on a busy machine it begins later
)

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("bash", "git"))), reason="there is no bash or no git")


def decide(
    folder: Path, *, shown: str = GOOD, demo: str = ":", test: str = ":", report: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the script in a repository of its own, where `make` does nothing but what is said here."""
    tools, clone = folder / "tools", folder / "clone"
    tools.mkdir()
    (clone / ".ci").mkdir(parents=True)
    shutil.copy2(SCRIPT, clone / ".ci" / "run")
    (clone / ".gitignore").write_text("/build/\n")
    (folder / "shown.txt").write_text(shown)
    make = tools / "make"
    make.write_text(f'#!/bin/sh\ncase $1 in demo) cat "{folder}/shown.txt"; {demo} ;; test) {test} ;; {report} esac\n')
    make.chmod(0o755)
    for words in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", "-C", str(clone), *words], check=True)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    return subprocess.run([clone / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)


def test_a_good_demonstration_is_kept_and_nothing_else(tmp_path: Path) -> None:
    done = decide(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "clone" / "build" / "demo.txt").read_text() == GOOD
    assert {path.name for path in tmp_path.iterdir()} == {"tools", "clone", "shown.txt"}


@pytest.mark.parametrize(
    ("shown", "demo", "test", "words"),
    [
        (GOOD.replace("2/6", "2/5"), ":", ":", "did not show its five rounds"),
        (GOOD.replace("=", "DIFFERS", 1), ":", ":", "did not show its five rounds"),
        (ROUNDS, ":", ":", "did not say that all checks passed"),
        (GOOD, "exit 1", ":", ""),
        (GOOD, 'mkdir "$TMPDIR/secemb-demo-x"', ":", "left files behind"),
        (GOOD, ":", "touch forgotten", "the working tree was changed"),
        (GOOD, ":", "exit 1", ""),
    ],
)
def test_what_is_missing_or_left_behind_stops_a_merge(
    shown: str, demo: str, test: str, words: str, tmp_path: Path
) -> None:
    done = decide(tmp_path, shown=shown, demo=demo, test=test)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize(
    ("target", "report"),
    [
        ("quality", "quality"),
        ("sequences", "sequences"),
        ("pacing", "pacing"),
        ("scale", "scale"),
        ("attack", "attacks"),
    ],
)
def test_a_report_that_misses_a_goal_stops_a_merge_and_is_shown(target: str, report: str, tmp_path: Path) -> None:
    done = decide(tmp_path, report=f"{target}) echo missed: a share; exit 1 ;;")
    assert done.returncode == 1
    assert "missed: a share" in done.stderr
    assert f"a goal of the report on {report} was missed" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
def test_a_process_that_is_left_stops_a_merge(tmp_path: Path) -> None:
    done = decide(tmp_path, demo=LEFT_RUNNING)
    os.kill(int((tmp_path / "clone" / "build" / "pid").read_text()), signal.SIGKILL)
    assert done.returncode == 1
    assert "left a process running" in done.stderr
