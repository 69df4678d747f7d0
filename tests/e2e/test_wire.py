"""`make wire` in its smallest setting that times reads: real services, with a proxy that counts in between."""

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.commands import check_shape, invoke, read_json

import secemb_lab.wire.wire
from secemb_lab.loadtest.loadtest import task_for
from secemb_shared.messages import Kind, RoundSpec, Sizes
from secemb_shared.messages.relayed import relayed_bytes
from secemb_tools.catalogues import choose

HTTP = 1024  # bytes of a request, and of an answer, that are not the message


def test_a_relayed_device_keeps_its_limit_and_each_request_has_a_short_head(tmp_path: Path) -> None:
    words = ["wire", "--sessions", "2", "--catalogue", "ML1M", "--output", str(tmp_path / "figures.json"), "--json"]
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert "figures written to" in done.stderr
    found = read_json(done.stdout)
    check_shape("wire", found)
    assert found == read_json((tmp_path / "figures.json").read_text())

    moved, messages = found["bytes"][0]["relayed"]["requests"], relayed_messages()
    assert moved.keys() == messages.keys()
    for name in messages:
        for way in (0, 1):
            assert 0 < moved[name][way] - messages[name][way] < HTTP, name
    for reads in found["reads"]:
        check_what_is_passed_on(reads)


def relayed_messages() -> dict[str, tuple[int, int]]:
    """Return what the messages of a relayed round have, up and down, by request."""
    task = task_for(choose(["ML1M"])[0], cohort=2)
    round_ = RoundSpec(task=task, number=0, model_version=0, model_digest=bytes(32))
    return {
        "join": (0, 0),
        "relayed-keys": (relayed_bytes(round_, Kind.RELAYED_KEYS), Sizes.of(task).relayed_download),
        "relayed-update": (relayed_bytes(round_, Kind.RELAYED_UPLOAD), 0),
    }


def check_what_is_passed_on(reads: dict[str, Any]) -> None:
    """A relay passes on nearly all that devices send and get; without one the servers hardly talk meanwhile."""
    messages = relayed_messages()
    for way in (0, 1):
        least = 0.9 * sum(moved[way] for moved in messages.values())
        for name in ("", ", 16 at once"):
            direct, relayed = (reads[f"{kind}{name}"]["peer_bytes_a_session"][way] for kind in ("direct", "relayed"))
            assert direct < least < relayed


def test_a_limit_that_is_missed_is_said_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = {"limit": (5, 5), "relayed": {"first": (5, 5), "later": (5, 6)}}
    monkeypatch.setattr(secemb_lab.wire.wire, "run", lambda *_args, **_options: {"bytes": [missed]})
    assert invoke("wire").exit_code == 1
