"""What `secemb status` makes of servers that differ, do not answer, or are not asked at all."""

from pathlib import Path
from typing import Any

import pytest

from secemb_tools.cli.status import is_sound
from secemb_tools.device.membership import read_own_ratings
from secemb_tools.errors import OperationError, UnreachableError
from secemb_tools.operate.operator_api import tokens_for
from secemb_tools.operate.status import watch_standing


def standing(*digests: str, versions: tuple[int, int] = (4, 4)) -> dict[str, Any]:
    servers = [
        {"ready": True, "model_version": version, "model_digest": digest}
        for version, digest in zip(versions, digests, strict=True)
    ]
    return {"servers": servers, "same_task": True, "digests_equal": digests[0] == digests[1]}


def test_one_version_with_two_digests_is_not_sound() -> None:
    assert is_sound(standing("aa", "aa"))
    assert not is_sound(standing("aa", "bb"))
    assert is_sound(standing("aa", "bb", versions=(4, 5)))  # one server publishes a moment before the other
    assert not is_sound({"servers": [], "same_task": None, "digests_equal": None})


def test_a_server_that_does_not_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    looks = iter(range(2))

    def look() -> dict[str, Any]:
        if next(looks) == 0:
            raise UnreachableError("http://there does not answer")
        return standing("aa", "aa")

    last = watch_standing(look, range(2), as_json=True)
    assert last == standing("aa", "aa")
    said = capsys.readouterr()
    assert "does not answer" in said.err
    assert len(said.out.splitlines()) == 1


def test_watching_remembers_that_the_last_look_failed_and_that_there_was_none() -> None:
    def away() -> dict[str, Any]:
        raise UnreachableError("http://there does not answer")

    def interrupted() -> dict[str, Any]:
        raise KeyboardInterrupt

    last = watch_standing(away, range(1), as_json=True)
    assert last is not None
    assert not is_sound(last)
    assert watch_standing(interrupted, range(1), as_json=True) is None


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
    with pytest.raises(OperationError, match="save it as one"):
        read_own_ratings(path)
