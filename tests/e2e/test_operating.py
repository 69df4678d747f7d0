"""docs/operating.md, typed from its first line to its last by two operators in one fresh shell.

Every block of commands is run as it stands, in order, but those of `ELSEWHERE`. Only what the page itself calls a
choice differs: where it is installed, ports that are free here, a small task, relayed, and a ledger that moves to
PostgreSQL. The package is built and installed as the page says; what it depends on is there already, because tests
contact no other machine. A server is started where the page says `secemb serve`, and the shell goes on when it answers.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.databases import Postgres

from secemb_tools.local.process import free_ports

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
LEDGER = "SECEMB_LEDGER__URL"  # the setting of the page, for one command
# What needs another machine, and what has tests of its own: test_successors.py.
ELSEWHERE = ("ssh -L", "tonight", "--capacity 400")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")  # of the distribution
FOLDERS = ("shared", "sdk", "services", "tools")
SMALLER = {
    "--items 3883": "--items 60",
    "--width 65": "--width 3",
    "--capacity 300": "--capacity 6",
    "--cohort 100": "--cohort 2",
    "--min-cohort 20": "--min-cohort 2",
    "--join-seconds 60": "--join-seconds 500",  # a full cohort goes on at once; no round ends before both have joined
    "$(seq 20)": "$(seq 2)",
}
CHOICES = {
    "python3 -m venv /opt/secemb": 'cd "$SOURCE"\npython3 -m venv "$INSTALLED"',
    "/opt/secemb/bin/pip": '"$INSTALLED/bin/pip"',
    'export PATH="/opt/secemb/bin:$PATH"': 'export PATH="$INSTALLED/bin:$PATH"\ncd "$OLDPWD"',
    "secemb task create --out films": "secemb pair export server1 > server1.pair.json\n"
    "secemb task create --server1 server1.pair.json --out films",
    'export NEW="sqlite:///$PWD/new.db"': 'export NEW="$POSTGRES"',
}
# Servers go on in the background; what the page says of a refusal is that the command fails.
SHELL = r"""
set -e -o pipefail
secemb() {
    if [ "$1" = serve ]; then
        command secemb "$@" >>"$3.log" 2>&1 &
        echo $! >"$3.pid"
        port=$(command secemb config show --config "$3" --json | python3 -c '
import json, sys
print(next(row["value"] for row in json.load(sys.stdin) if row["setting"] == "metrics.port"))')
        for _ in $(seq 300); do
            curl -sf "http://127.0.0.1:$port/healthz" >/dev/null && return
            kill -0 "$(cat "$3.pid")" || { tail -5 "$3.log"; return 1; }
            sleep 0.2
        done
        return 1
    fi
    command secemb "$@"
}
python3() { # what a new environment lacks, it would get from a package index; its own setuptools may be too old
    command python3 "$@"
    if [ "$1 $2" = "-m venv" ]; then
        (cd "$3"/lib/python3*/site-packages && rm -rf setuptools* && echo "$DEPENDENCIES" >dependencies.pth)
    fi
}
mv() { # what the page moves away belongs to a server that was stopped
    pid=$(cat "${1%/data}.pid")
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    command mv "$@"
}
"""

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "openssl"))), reason="no bash, curl or openssl"),
]


def blocks(page: str) -> list[str]:
    """Return the shell blocks of a page, without those that are run elsewhere."""
    found = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block for block in found if not any(word in block for word in ELSEWHERE)]


def adapted(text: str) -> str:
    """Return commands with a small task and ports that are free here."""
    for said, chosen in (SMALLER | CHOICES).items():
        assert said in PAGE, f"the page no longer says {said}"
        text = text.replace(said, chosen)
    numbers = sorted(set(re.findall(r"\b84[45]\d\b", PAGE)))
    free = dict(zip(numbers, map(str, free_ports(len(numbers))), strict=True))
    return re.sub(r"\b84[45]\d\b", lambda found: free[found[0]], text)


def run(script: str, folder: Path, **more: str) -> str:
    """Type a script into a fresh bash, which ends at the first command that fails; return what it says."""
    variables = {"HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.defpath}", "LANG": "C.UTF-8"} | more
    with subprocess.Popen(
        ["bash", "-c", SHELL + script],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, _ = shell.communicate(timeout=1780)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the servers, and whatever did not end
    assert shell.returncode == 0, said[-4000:]
    return said


def to_install(folder: Path, target: Path) -> dict[str, str]:
    """Return the variables of an installation from a copy of the sources, with what is there already."""
    source = folder / "source"
    source.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        made = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=made)
    return {
        "SOURCE": str(source),
        "INSTALLED": str(target),
        "DEPENDENCIES": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """A database that was made as the page says."""
    (statements,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    postgres.run(statements)
    try:
        yield f"postgresql://secemb@/secemb?host={postgres.server.pgdata}"
    finally:
        postgres.run("DROP DATABASE secemb WITH (FORCE);\nDROP ROLE secemb;")


def test_two_operators_get_from_empty_directories_through_a_rotation_and_a_restore_by_typing_the_page(
    tmp_path: Path, database: str
) -> None:
    typed = blocks(PAGE)
    (take_part,) = (block for block in typed if "secemb device loop" in block)
    moved = f"{LEDGER}=$NEW secemb token list --config server0"
    last = ["echo THE END OF THE PAGE", take_part, "secemb model list --config server1", moved]
    script = adapted("\n".join([*typed, *last]))
    for command in (
        "init",
        "pair rotate",
        "pair switch",
        "backup",
        "restore",
        "serve",
        "device join",
        "operator add",
        "relay-key rotate",
    ):
        assert f"secemb {command}" in script
    installed = tmp_path / "installed"
    said, _, afterwards = run(script, tmp_path, POSTGRES=database, **to_install(tmp_path, installed)).partition(
        "THE END OF THE PAGE"
    )
    assert "fail " not in said
    assert list(installed.glob("lib/python3*/site-packages/secemb_tools/__init__.py")), "not the one under test"
    assert len(re.findall(r"^round \d+ train: ", said, re.MULTILINE)) >= 2, "a round of two devices, over TLS"
    # The restored server and the rotated keys carry another round: version 2 is published on both.
    assert re.search(r"^2 +[0-9a-f]{64} +yes +yes", afterwards, re.MULTILINE), afterwards
    assert re.search(r"^phone-1 .* active ", afterwards, re.MULTILINE), "tokens survive the move to PostgreSQL"


def test_a_command_that_fails_ends_the_walk(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="secemb init"):
        run("secemb check nowhere\necho not reached", tmp_path)
