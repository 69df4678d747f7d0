"""`secemb token` with many devices: from files and stdin, repeated, and refused before anything is added."""

import csv
import hashlib
import io
import json
from pathlib import Path

import pytest
from tests.e2e.commands import refused
from tests.e2e.servers import secemb, set_up
from typer.testing import CliRunner

from secemb_tools.cli.main import app

HASHES = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(3)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return set_up(tmp_path_factory.mktemp("tokens"), devices=1).pair[0].folder


def listed(home: Path) -> dict[str, str]:
    return {
        row["name"]: row["state"]
        for row in json.loads(secemb("token", "list", "--limit", 9999, "--config", home, "--json"))
    }


def test_names_from_a_file_or_stdin_become_tokens_in_csv(home: Path, tmp_path: Path) -> None:
    names = [f"file {number}" for number in range(4500)]  # more than two batches
    file = tmp_path / "names.txt"
    file.write_text("\n".join(names) + "\n\n")
    rows = list(csv.DictReader(io.StringIO(secemb("token", "create", "--names-from", file, "--config", home))))
    assert [row["name"] for row in rows] == names
    assert len({row["token"] for row in rows}) == len(names)
    words = ["token", "create", "--names-from", "-", "--skip-existing", "--config", str(home)]
    done = CliRunner().invoke(app, words, input="file 7\nstdin, with a comma\n")
    assert done.exit_code == 0
    assert [row["name"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["stdin, with a comma"]
    assert "a token exists for file 0" in refused("token", "create", "--names-from", file, "--config", home)
    assert "give names, or a file" in refused("token", "create", "--config", home)
    page = json.loads(secemb("token", "list", "--after", "file 10", "--limit", 2, "--config", home, "--json"))
    assert [row["name"] for row in page] == ["file 100", "file 1000"]


def test_hashes_are_imported_once_and_a_wrong_file_adds_nothing(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "hashes.csv"
    file.write_text("sha256,name,note\n" + "".join(f"{one},import {at},x\n" for at, one in enumerate(HASHES[:2])))
    counts = [json.loads(secemb("token", "import", file, "--config", home, "--json")) for _ in range(2)]
    assert counts == [{"added": 2, "unchanged": 0}, {"added": 0, "unchanged": 2}]
    for text, words in (
        ("", "must name the columns name and sha256"),
        (f"name,sha256\nnew,{HASHES[2]}\nbad,{HASHES[2].upper()}\n", "line 3: sha256 must have 64"),
        (f"name,sha256\nnew,{HASHES[2]}\n,{HASHES[2]}\n", "'' is not a name"),
        (f"name,sha256\nnew,{HASHES[2]}\nnew,{HASHES[2]}\n", "the name new is given twice"),
        (f"name,sha256\nimport 0,{HASHES[2]}\n", "import 0 has another token; correct the file"),
        (f"name,sha256\nnew,{HASHES[0]}\n", "new has the same hash as another device"),
    ):
        file.write_text(text)
        assert words in refused("token", "import", file, "--config", home)
    assert "new" not in listed(home)


def test_a_device_gets_its_next_token_and_loses_all_of_them_at_once(home: Path) -> None:
    first = json.loads(secemb("token", "create", "phone", "--days", 9, "--config", home, "--json"))[0]["token"]
    following = json.loads(secemb("token", "replace", "phone", "--config", home, "--json"))["token"]
    assert following not in ("", first)
    rows = json.loads(secemb("token", "list", "--after", "file 9999", "--config", home, "--json"))
    mine = [row for row in rows if row["name"] == "phone"]
    assert [row["state"] for row in mine] == ["active", "active"]
    assert [row["expires"] is None for row in mine] == [False, True]
    digits = hashlib.sha256(first.encode()).hexdigest()[:12]
    assert json.loads(secemb("token", "revoke", digits, "--config", home, "--json"))["state"] == "revoked"
    assert listed(home)["phone"] == "revoked"
    assert "under another name" in refused("token", "replace", "phone", "--config", home)
    assert "no device has this name" in refused("token", "replace", "nobody", "--config", home)


def test_a_device_is_suspended_and_resumed_by_name_or_hash(home: Path) -> None:
    made = json.loads(secemb("token", "create", "tablet", "--config", home, "--json"))[0]["token"]
    digits = hashlib.sha256(made.encode()).hexdigest()[:12]
    reason = ["--reason", "sends damaged messages"]
    row = json.loads(secemb("token", "suspend", digits, *reason, "--config", home, "--json"))
    assert (row["name"], row["state"], row["joined"], row["problem"]) == ("tablet", "suspended", 0, None)
    assert listed(home)["tablet"] == "suspended"
    newest = json.loads(secemb("operator", "actions", "--config", home, "--json"))[0]
    assert (newest["what"], newest["reason"]) == ("token suspend", "sends damaged messages")
    assert json.loads(secemb("token", "resume", "tablet", "--config", home, "--json"))["state"] == "active"
    assert listed(home)["tablet"] == "active"
    assert "no token matches this name" in refused("token", "suspend", "nobody", "--config", home)


def test_what_commands_did_is_recorded_with_the_user_and_without_names_of_devices(home: Path) -> None:
    secemb("token", "create", "one more", "--config", home)
    shown = secemb("operator", "actions", "--config", home, "--json")
    newest = json.loads(shown)[0]
    assert (newest["what"], newest["data"]) == ("token create", {"tokens": 1})
    assert newest["by"].endswith(", on this machine")
    assert "one more" not in shown
