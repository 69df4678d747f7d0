"""Room on the disk: what counts as a shortage, what a file that cannot be written becomes, and lines about refusals."""

import errno
import os
from pathlib import Path

import pytest

from secemb_party.errors import StorageFullError, StorageUnavailableError
from secemb_party.http.problems import problem_for, problem_response
from secemb_party.room import Space
from secemb_party.storage.files import write_file


def space(folder: Path, *, reserve: int, full: bool = False) -> Space:
    return Space(folder, reserve=reserve, ledger_full=lambda: full)


def test_there_is_room_above_the_reserve_and_none_below_it(tmp_path: Path) -> None:
    assert space(tmp_path, reserve=1).shortage() is None
    scarce = space(tmp_path, reserve=1 << 60)
    assert "min_free_bytes" in str(scarce.shortage())
    with pytest.raises(StorageFullError):
        scarce.require()


def test_a_database_without_room_is_a_shortage_however_much_is_free_here(tmp_path: Path) -> None:
    assert "database" in str(space(tmp_path, reserve=0, full=True).shortage())


def test_a_device_is_told_to_come_back_in_a_minute() -> None:
    error = StorageFullError("the disk is nearly full")
    answer = problem_response(problem_for(type(error)), error)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EDQUOT])
def test_a_file_that_cannot_be_written_leaves_the_old_one_and_may_be_tried_again(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageUnavailableError, match=os.strerror(number)):
            write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert problem_for(StorageUnavailableError).status == 503
