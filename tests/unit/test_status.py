"""What `secemb status` makes of servers that differ, do not answer, or are not asked at all."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from secemb_tools.device import read_own_ratings
from secemb_tools.errors import OperationError, UnreachableError
from secemb_tools.operate.operator_api import tokens_for
from secemb_tools.operate.status import ServerStatus, Status, is_healthy, picture, watch_status


def server(version: int, digest: str) -> ServerStatus:
    return {
        "url": "http://there",
        "role": 0,
        "ready": True,
        "checks": [],
        "task": "task",
        "task_id": "00",
        "cohort": 2,
        "rounds": 4,
        "trained_rounds": version,
        "finished": version >= 4,
        "control": {
            "paused": None,
            "draining": None,
            "safe_to_stop": False,
            "unfinished": None,
            "closing": None,
            "aborting": None,
            "peer": None,
        },
        "round": None,
        "model_version": version,
        "model_digest": digest,
        "refusals": {},
    }


def status(*digests: str, versions: tuple[int, int] = (4, 4)) -> Status:
    servers = [server(*one) for one in zip(versions, digests, strict=True)]
    return {"servers": servers, "away": [], "same_task": True, "digests_equal": digests[0] == digests[1]}


def test_one_version_with_two_digests_is_not_healthy() -> None:
    assert is_healthy(status("aa", "aa"))
    assert not is_healthy(status("aa", "bb"))
    assert is_healthy(status("aa", "bb", versions=(4, 5)))  # one server publishes a moment before the other
    assert not is_healthy({"servers": [], "away": [], "same_task": None, "digests_equal": None})


def test_a_task_that_has_ended_says_so() -> None:
    shown = []
    for version in (3, 4):
        console = Console(width=120, record=True, file=StringIO())
        console.print(picture(status("aa", "aa", versions=(version, version))))
        shown.append(console.export_text())
    assert "3 of 4 rounds" in shown[0]
    assert "none open" in shown[0]
    assert "4 of 4 rounds" in shown[1]
    assert "none: the task has ended" in shown[1]


def test_a_server_that_does_not_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    ticks = iter(range(2))

    def read() -> Status:
        if next(ticks) == 0:
            raise UnreachableError("http://there does not answer")
        return status("aa", "aa")

    last = watch_status(read, range(2), as_json=True)
    assert last == status("aa", "aa")
    said = capsys.readouterr()
    assert "does not answer" in said.err
    assert len(said.out.splitlines()) == 1


def test_one_server_that_does_not_answer_hides_nothing_of_the_other() -> None:
    found: Status = status("aa", "aa") | {"away": ["http://there does not answer"], "digests_equal": None}
    console = Console(width=120, record=True, file=StringIO())
    console.print(picture(found))
    shown = console.export_text()
    assert "http://there does not answer" in shown
    assert "4 of 4 rounds" in shown
    assert not is_healthy(found)


def test_watching_remembers_that_the_last_look_failed_and_that_there_was_none() -> None:
    def away() -> Status:
        raise UnreachableError("http://there does not answer")

    def interrupted() -> Status:
        raise KeyboardInterrupt

    last = watch_status(away, range(1), as_json=True)
    assert last is not None
    assert not is_healthy(last)
    assert watch_status(interrupted, range(1), as_json=True) is None


def test_a_token_of_other_letters_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPERATOR_TOKEN", "tökén")
    with pytest.raises(OperationError, match="copy it again") as caught:
        tokens_for(1, [])
    assert "tökén" not in str(caught.value)
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(OperationError, match="copy it again"):
        tokens_for(1, [tmp_path / "token"])


def test_ratings_that_are_not_utf_8_are_refused_with_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes("item,rating\n1,5\n".encode("utf-16"))
    with pytest.raises(OperationError, match=r"not a CSV file in UTF-8; write one `item,rating` per line"):
        read_own_ratings(path)
