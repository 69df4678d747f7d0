"""The one writer of files: whole or not at all, on the disk before it returns, and never too readable."""

import os
from pathlib import Path

import pytest
from tests.unit.stored_models import note_disk

from secemb_party.storage.blob import read_all
from secemb_party.storage.files import make_folder, remove_unfinished, write_file
from secemb_party.storage.share_files import ShareFiles


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for data in (b"first", b"second, and longer"):
        write_file(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["fchmod", "fsync", "replace"])
def test_a_fault_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    path = tmp_path / "state.json"
    write_file(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(Path if fault == "replace" else os, fault, fail)
        with pytest.raises(OSError, match="planted"):
            write_file(path, b"new", mode=0o600)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_file_has_exactly_the_permissions_asked_for(tmp_path: Path, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_file(tmp_path / "secret", b"", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == mode


def test_the_file_is_on_the_disk_before_its_name_and_the_name_before_the_writer_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = note_disk(monkeypatch)
    write_file(tmp_path / "state.json", b"data")
    assert events == ["file", "rename", "folder"]


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_folder(folder)
    for name in (".state.json.0123.tmp", "state.json", ".hidden"):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (0, 0))
    (folder / ".state.json.4567.tmp").write_bytes(b"half")  # its writer may still be at it
    remove_unfinished(folder)
    (folder / ".state.json.4567.tmp").unlink()
    assert sorted(path.name for path in folder.iterdir()) == [".hidden", "state.json"]


def test_a_share_is_written_by_the_same_writer_and_leftovers_go_with_the_next_one(tmp_path: Path) -> None:
    store, (first, second) = ShareFiles(tmp_path), (bytes([1]) * 32, bytes([2]) * 32)
    store.save(first, b"list", b"numbers")
    (tmp_path / "shares" / ".half.0123.tmp").write_bytes(b"num")
    os.utime(tmp_path / "shares" / ".half.0123.tmp", (0, 0))
    digest = store.save(second, b"list", b"more numbers")
    assert digest is not None
    assert read_all(store.load(second, digest)) == b"more numbers"
    assert len(list((tmp_path / "shares").iterdir())) == 2
    store.prune({second})
    assert not store.has(first)
    assert store.has(second)
