"""Files that change while a server runs: taken over when they can be used, and not before."""

import os
from pathlib import Path

import pytest

from secemb_party.file_watch import LOOK_SECONDS, FileWatch


class Now:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def put(path: Path, text: str) -> None:
    """Replace a file as programs do that renew certificates: the new one takes the place of the old."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1")
    return [tmp_path / "a", tmp_path / "b"]


def equal(files: list[Path]) -> str:
    """Return what both files say; they must say the same, as a key must fit its certificate."""
    first, second = (path.read_text() for path in files)
    if first != second:
        raise ValueError("they differ")
    return first


def test_a_change_is_seen_at_the_next_look(files: list[Path]) -> None:
    now = Now()
    watch = FileWatch(files, lambda: equal(files), clock=now)
    for path in files:
        put(path, "2")
    assert watch.get() == "1"
    now.seconds += LOOK_SECONDS
    assert watch.get() == "2"


def test_half_of_a_change_is_not_used(files: list[Path]) -> None:
    now = Now()
    watch = FileWatch(files, lambda: equal(files), clock=now)
    for path, seen in zip(files, ("1", "2"), strict=True):
        put(path, "2")
        now.seconds += LOOK_SECONDS
        assert watch.get() == seen


def test_files_that_are_gone_or_broken_change_nothing(files: list[Path]) -> None:
    now = Now()
    watch = FileWatch(files, lambda: equal(files), clock=now)
    files[0].unlink()
    now.seconds += LOOK_SECONDS
    assert watch.get() == "1"
    put(files[0], "1")
    now.seconds += LOOK_SECONDS
    assert watch.get() == "1"


def test_files_that_are_as_they_were_are_not_read_again(files: list[Path]) -> None:
    now = Now()
    reads: list[str] = []
    watch = FileWatch(files, lambda: reads.append(equal(files)), clock=now)
    for _ in range(5):
        now.seconds += LOOK_SECONDS
        watch.get()
    assert len(reads) == 1


def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    """Kubernetes replaces the folder that a secret's links lead to."""
    now, link = Now(), tmp_path / "link"
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    link.symlink_to("one")
    watch = FileWatch([link], link.read_text, clock=now)
    os.symlink("two", tmp_path / "other")
    (tmp_path / "other").replace(link)
    now.seconds += LOOK_SECONDS
    assert watch.get() == "two"


def test_what_cannot_be_used_at_the_start_is_refused(files: list[Path]) -> None:
    put(files[0], "2")
    with pytest.raises(ValueError, match="differ"):
        FileWatch(files, lambda: equal(files))
