"""The operator's commands: what they write, what they print once, and what they refuse with a fix."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.e2e.servers import Servers, secemb, set_up
from typer.testing import CliRunner

from secemb_party.settings import load_settings
from secemb_shared.messages import TaskSpec
from secemb_tools.cli.main import app
from secemb_tools.operate.certificate import make_identity

ROOT = Path(__file__).parents[2]
TASK = ["--items", 60, "--width", 3, "--capacity", 6, "--cohort", 4, "--min-cohort", 2, "--clip", 4]


def refused(*words: object, code: int = 1) -> str:
    """Run a command that must fail, and return what it says."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return re.sub(r"\s+", " ", done.output)


@pytest.fixture
def pair(tmp_path: Path) -> Servers:
    return set_up(tmp_path, devices=1)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_makes_a_complete_directory_that_only_its_owner_can_read(tmp_path: Path) -> None:
    shown = json.loads(secemb("init", "--role", 0, "--dir", tmp_path / "s", "--host", "zero.example", "--json"))
    names = set(files(tmp_path / "s"))
    secrets = {f"secrets/{name}" for name in ("identity.key", "operators.json", "peer.key", "peer.token")}
    assert names == {"secemb.toml", "tls/peer.crt", *secrets}
    for path in (tmp_path / "s").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o644 if path.suffix == ".crt" else 0o600), path
    assert shown["operator_token"].encode() not in b"".join(files(tmp_path / "s").values())


def test_server_1_begins_without_a_bearer(tmp_path: Path) -> None:
    secemb("init", "--role", 1, "--dir", tmp_path, "--host", "10.0.0.7")
    assert not (tmp_path / "secrets" / "peer.token").exists()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    assert "not empty" in refused("init", "--role", 0, "--dir", tmp_path, "--host", "a")
    assert "ASCII" in refused("init", "--role", 0, "--dir", tmp_path / "new", "--host", "ä.example")
    assert not (tmp_path / "new").exists()


def test_pairing_leads_to_settings_that_load(pair: Servers) -> None:
    for server in pair.pair:
        settings = load_settings(server.folder / "secemb.toml", {})
        assert settings.role == server.role
    assert load_settings(pair.pair[0].folder / "secemb.toml", {}).peer.url == f"https://127.0.0.1:{pair.peer_port}"


def test_each_secret_is_in_one_file_only(pair: Servers) -> None:
    everything = files(pair.folder)
    secrets = [
        (pair.pair[0].folder / "secrets" / "peer.token").read_bytes().strip(),
        (pair.pair[0].folder / "secrets" / "identity.key").read_bytes(),
        *(server.folder.joinpath("secrets", "peer.key").read_bytes() for server in pair.pair),
    ]
    for secret in secrets:
        assert sum(secret in content for content in everything.values()) == 1
    ticket = (pair.pair[0].folder / "task" / "ticket.key").read_bytes()
    assert {name for name, content in everything.items() if ticket in content} == {
        "server0/task/ticket.key",
        "task/server0/ticket.key",  # what `task create` wrote, and the operator has copied
    }
    for token in (*pair.tokens, *pair.operator_tokens):
        assert not any(token.encode() in content for content in everything.values())


def test_a_pair_file_holds_nothing_secret_and_both_sides_read_the_same_words(pair: Servers) -> None:
    for mine, other in ((0, 1), (1, 0)):
        folder, peer = pair.pair[mine].folder, pair.pair[other].folder
        done = CliRunner().invoke(app, ["pair", "export", str(folder)])
        assert "PRIVATE" not in done.stdout
        assert set(json.loads(done.stdout)) <= {
            *("format", "role", "certificate", "peer_url", "relay_key", "token_sha256", "ticket_public", "task"),
        }
        path = pair.folder / "again.json"
        path.write_text(done.stdout)
        told = CliRunner().invoke(app, ["pair", "import", str(peer), str(path)])
        for line in done.stderr.splitlines():
            assert line.split(maxsplit=1)[1] in told.stdout, line


def test_another_pair_file_is_taken_only_on_purpose(pair: Servers) -> None:
    zero, one = (server.folder for server in pair.pair)
    path = pair.folder / "new.json"
    secemb("pair", "rotate", one)
    secemb("pair", "switch", one)
    path.write_text(secemb("pair", "export", one))
    assert "--replace" in refused("pair", "import", zero, path)
    secemb("pair", "import", zero, path, "--replace")
    assert (zero / "tls" / "server1.crt").read_bytes() == (one / "tls" / "peer.crt").read_bytes()
    assert "import the other server's file" in refused("pair", "import", one, path)
    path.write_text('{"role": 1}')
    assert "secemb pair export" in refused("pair", "import", zero, path)
    assert "secemb init" in refused("pair", "export", pair.folder)


def test_check_passes_a_server_that_can_start(pair: Servers) -> None:
    found = json.loads(secemb("check", pair.pair[1].folder, "--json"))
    assert found["ok"]
    assert {line["check"] for line in found["checks"]} >= {
        "settings",
        "task",
        "ledger",
        "data",
        "devices port",
        "kernel",
    }


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda home: (home / "tls" / "server1.crt").unlink(), "peer.peer_ca: no such file"),
        (lambda home: (home / "secrets" / "peer.key").chmod(0o644), "chmod 600"),
        (lambda home: (home / "task" / "task.json").write_text("{}"), "secemb task create wrote"),
        (lambda home: (home / "task" / "ticket.key").write_text("no key"), "`secemb task create` generates one"),
        (lambda home: (home / "secrets" / "operators.json").write_text("no list"), "is corrupted"),
        (
            lambda home: (home / "secrets" / "peer.key").write_bytes(make_identity("a").key),
            "does not belong to the cert",
        ),
        (lambda home: (home / "tls" / "server1.crt").write_text("no certificate"), "not a PEM certificate"),
        (
            lambda home: (home / "tls" / "peer.crt").write_bytes(make_identity("a", days=-0.01).certificate),
            "expired on",
        ),
        (lambda home: (home / "tls" / "peer.crt").write_bytes(make_identity("a", days=9).certificate), "expires on"),
        (lambda home: (home / "secemb.toml").write_text("role = 0\nfoo = 1"), "foo: unknown setting"),
        (lambda home: (home / "data" / "ledger.db").write_text("no database" * 100), "ledger"),
    ],
)
def test_check_names_what_is_wrong_and_the_fix(pair: Servers, harm: object, words: str) -> None:
    assert callable(harm)
    harm(pair.pair[0].folder)
    said = refused("check", pair.pair[0].folder, "--offline")
    assert words in said
    assert "fix: " in said


def test_check_says_that_server_1_cannot_be_reached(pair: Servers) -> None:
    assert "start it, or check url in [peer]" in refused("check", pair.pair[0].folder)


def test_serve_refuses_settings_with_a_fault_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "secemb_tools", "serve", "--config", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 1
    assert "secemb init" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def server1(pair: Servers) -> Iterator[Servers]:
    try:
        pair.pair[1].start()
        yield pair
    finally:
        pair.end()


def test_check_tests_the_connection_to_server_1(server1: Servers) -> None:
    home = server1.pair[0].folder
    said = secemb("check", home)
    for words in ("mutual TLS and bearer token accepted", "the same task", "the two clocks agree"):
        assert words in said
    running = [line for line in secemb("check", server1.pair[1].folder).splitlines() if " port " in line]
    assert len(running) == 4
    assert all(line.startswith("ok") and "held by this server, which is running" in line for line in running), running
    token = home / "secrets" / "peer.token"
    right = token.read_text()
    token.write_text("wrong")
    assert "does not accept this server's bearer token" in refused("check", home)
    token.write_text(right)
    secemb("pair", "rotate", home)
    assert "server 1 does not accept the next certificate" in refused("pair", "switch", home)
    secemb("pair", "switch", home, "--now")
    assert "does not accept this server's certificate" in refused("check", home)
    (home / "tls" / "server1.crt").write_bytes(make_identity("127.0.0.1").certificate)
    assert "is not server 1, or server 1 has a new certificate" in refused("check", home)
    (home / "tls" / "server1.crt").write_bytes(make_identity("elsewhere").certificate)
    assert "is for elsewhere, not 127.0.0.1" in refused("check", home)


def test_a_task_is_the_same_for_both_and_can_be_shown(tmp_path: Path) -> None:
    made = json.loads(secemb("task", "create", "--out", tmp_path, *TASK, "--json"))
    ours, theirs = files(tmp_path / "server0"), files(tmp_path / "server1")
    assert set(ours) == {"task.json", "ticket.key"}
    assert set(theirs) == {"task.json", "ticket.pub"}
    assert ours["task.json"] == theirs["task.json"]
    assert stat.S_IMODE((tmp_path / "server0" / "ticket.key").stat().st_mode) == 0o600
    task = TaskSpec.decode(ours["task.json"])
    assert made["task_id"] == task.task_id.hex()
    assert task.bound == 4 * 2**16
    assert made["loss_bound"] <= 1e-6
    assert json.loads(secemb("task", "show", tmp_path / "server1" / "task.json", "--json")) == made
    assert task.task_id.hex() in secemb("task", "show", tmp_path / "server0" / "task.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--capacity", 61], "--capacity must be at most --items"),
        (["--cohort", 40_000, "--clip", 1], "lower the cohort, the clip or the fraction bits, or use a larger ring"),
        (["--min-cohort", 1], "min_cohort must be at least 2"),
        (["--min-cohort", 5], "at most the cohort"),
        (["--clip", "nan"], "finite"),
        (["--clip", 0], "bound must be at least 1"),
        (["--row-rate", "inf"], "such as 0.025"),
        (["--layout", "tree"], "binned, direct"),
        (["--join-seconds", 700], "upload_seconds must be between"),
        (["--name", "Zoë"], "printable ASCII"),
        (["--row-rate", "2000000"], "from 0 to 1,000,000"),
        (["--dense-rate", "1000000.5"], "from 0 to 1,000,000"),
        (["--initial-scale", "2000000"], "from 0 to 1,000,000"),
    ],
)
def test_an_unsafe_task_is_refused_with_the_reason(tmp_path: Path, options: list[object], words: str) -> None:
    assert words in refused("task", "create", "--out", tmp_path / "t", *TASK, *options)
    assert not (tmp_path / "t").exists()


def test_a_task_can_have_the_papers_layout(tmp_path: Path) -> None:
    made = json.loads(secemb("task", "create", "--out", tmp_path, *TASK, "--layout", "direct", "--json"))
    assert made["slots"] == 6
    assert "not empty" in refused("task", "create", "--out", tmp_path, *TASK)


def test_tokens_are_shown_once_and_can_be_revoked(pair: Servers) -> None:
    home = pair.pair[0].folder
    assert "a token exists for phone-0" in refused("token", "create", "new-1", "phone-0", "--config", home)
    assert "new-1" not in secemb("token", "list", "--config", home)  # all of them or none
    listed = secemb("token", "list", "--config", home)
    assert "phone-0" in listed
    assert pair.tokens[0] not in listed
    assert json.loads(secemb("token", "revoke", "phone-0", "--config", home, "--json"))["revoked"] is not None
    assert "no token matches this name" in refused("token", "revoke", "phone-9", "--config", home)
    assert "only server 0" in refused("token", "list", "--config", pair.pair[1].folder)


def test_weights_are_imported_before_the_first_start_and_exported_after_it(pair: Servers, tmp_path: Path) -> None:
    weights, out = tmp_path / "weights.safetensors", tmp_path / "out.safetensors"
    rows = np.arange(1200, dtype=np.float32).reshape(400, 3)
    save_file({"rows": rows, "dense": np.zeros(2, dtype=np.float32)}, weights)
    digests = {secemb("model", "import", weights, "--config", server.folder) for server in pair.pair}
    assert len(digests) == 1
    one = pair.pair[1]
    assert "no version is published" in refused("model", "export", out, "--config", one.folder)
    try:
        one.start()
        secemb("model", "export", out, "--split-bias", "--config", one.folder)
        assert "already started" in refused("model", "import", weights, "--config", one.folder)
    finally:
        pair.end()
    assert np.array_equal(load_file(out)["embedding"], rows[:, :2])
    assert "not be overwritten" in refused("model", "export", out, "--config", one.folder)
    listed = json.loads(secemb("model", "list", "--config", one.folder, "--json"))
    assert [(row["version"], row["published"], row["file"]) for row in listed] == [(0, True, True)]


def test_a_model_goes_on_in_a_new_task(pair: Servers, tmp_path: Path) -> None:
    """What docs/operating.md recommends after a ledger was lost."""
    one, out = pair.pair[1], tmp_path / "out.safetensors"
    try:
        one.start()
        old = json.loads(secemb("model", "export", out, "--config", one.folder, "--json"))
    finally:
        pair.end()
    for server in pair.pair:
        path = server.folder / "task" / "task.json"
        path.write_bytes(path.read_bytes().replace(b"processes", b"processes, again"))
    made = [json.loads(secemb("model", "import", out, "--config", server.folder, "--json")) for server in pair.pair]
    assert made[0] == made[1]
    assert made[0]["version"] == 0
    assert made[0]["digest"] != old["digest"]  # a version of another task


@pytest.mark.parametrize("role", [0, 1])
def test_the_compose_file_of_each_organisation_is_closed(role: int) -> None:
    text = (ROOT / "deploy" / "compose" / f"server{role}" / "compose.yaml").read_text()
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"):
        assert line in text
    for port in (8440, 8442, 8443):
        assert f'"127.0.0.1:{port}:{port}"' in text
    assert ('"8441:8441"' in text) == (role == 1)


def test_weights_that_are_not_finite_are_refused(pair: Servers, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file({"rows": np.full((400, 3), np.nan, np.float32), "dense": np.zeros(2, np.float32)}, weights)
    assert "finite" in refused("model", "import", weights, "--config", pair.pair[0].folder)


def test_a_ledger_is_made_by_its_own_command_where_serving_must_not(pair: Servers) -> None:
    home = pair.pair[1].folder
    path = home / "secemb.toml"
    path.write_text(path.read_text().replace("migrate = true", "migrate = false"))
    assert "secemb ledger upgrade" in refused("check", home)
    secemb("ledger", "upgrade", "--config", home)
    secemb("check", home)


def test_an_address_of_another_machine_is_found(pair: Servers) -> None:
    path = pair.pair[1].folder / "secemb.toml"
    path.write_text(path.read_text().replace('host = "127.0.0.1"', 'host = "192.0.2.1"', 1))
    assert "choose an address of this machine" in refused("check", pair.pair[1].folder)
