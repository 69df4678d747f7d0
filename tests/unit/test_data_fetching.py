"""Fetching: what arrives is checked before it is there, and a failure leaves nothing behind."""

import functools
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.e2e.commands import json_of, refused
from tests.unit.made_up_ratings import made_up_ratings, write_as_movielens

from secemb_tools.datasets import DatasetError
from secemb_tools.datasets.download import ARCHIVES, fetch


@dataclass
class Recorded:
    """A progress bar that remembers."""

    total: int = 0
    done: int = 0
    closed: bool = False

    def update(self, count: int) -> None:
        self.done += count

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.closed = True


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder on loopback; return it and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def archive(tmp_path: Path, names: dict[str, bytes] | None = None) -> bytes:
    """Return an archive as the publisher makes it, of ratings that nobody gave."""
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    write_as_movielens(made_up_ratings(people=12, items=30, count=200), source)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for path in source.iterdir():
            file.write(path, f"ml-100k/{path.name}")
        for name, content in (names or {}).items():
            file.writestr(name, content)
    return made.getvalue()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def test_a_set_is_fetched_checked_unpacked_and_described(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    data = archive(tmp_path)
    (folder / "ml-100k.zip").write_bytes(data)
    bar = Recorded()
    place = fetch(
        "ml-100k",
        tmp_path / "data",
        source=f"{url}/ml-100k.zip",
        md5=md5(data),
        progress=bar,
    )
    assert (bar.done, bar.total, bar.closed) == (len(data), len(data), True)
    assert {path.name for path in place.iterdir()} == {"u.data", "u.user", "u.item", "u.occupation"}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ml-100k"]
    with pytest.raises(DatasetError, match="already exists; remove it"):
        fetch("ml-100k", tmp_path / "data")
    assert json_of("data fetch", "ml-100k", "--path", place)["people"] == 12


def test_the_command_shows_the_licence_and_the_figures(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    data = archive(tmp_path)
    (folder / "x.zip").write_bytes(data)
    words = ("ml-100k", "--into", tmp_path / "data", "--from", f"{url}/x.zip", "--md5", md5(data))
    assert json_of("data fetch", *words)["items"] == 30
    again = refused("data", "fetch", *words)
    assert "may not be redistributed" in again
    assert "remove it" in again


def test_files_of_another_set_are_not_taken_for_the_named_one(tmp_path: Path) -> None:
    write_as_movielens(made_up_ratings(people=12, items=30, count=200), tmp_path)
    assert f"{tmp_path} contains ML100K, not ml-25m" in refused("data", "fetch", "ml-25m", "--path", tmp_path)
    table = tmp_path / "ML25M.csv"
    table.write_text("user,item,rating\n1,1,5\n")
    assert "was unpacked to" in refused("data", "fetch", "ml-25m", "--path", table)


def test_another_checksum_is_refused_and_nothing_is_left(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    (folder / "x.zip").write_bytes(archive(tmp_path))
    with pytest.raises(DatasetError, match="published checksum"):
        fetch("ml-100k", tmp_path / "data", source=f"{url}/x.zip")
    assert list((tmp_path / "data").iterdir()) == []


def test_no_name_in_an_archive_leads_out_of_the_sets_own_directory(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    names = {"../escaped": b"1", "ml-100k/../../escaped": b"1", "/escaped": b"1", "ml-100k/deep/escaped": b"1"}
    data = archive(tmp_path, names)
    (folder / "x.zip").write_bytes(data)
    place = fetch("ml-100k", tmp_path / "data", source=f"{url}/x.zip", md5=md5(data))
    assert [path for path in tmp_path.rglob("escaped") if place not in path.parents] == []
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ml-100k"]


@pytest.mark.parametrize("content", [b"no archive", None])
def test_what_is_no_archive_of_the_set_is_refused(
    content: bytes | None, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = served
    if content is None:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as file:
            file.writestr("other/u.data", b"")
        content = made.getvalue()
    (folder / "x.zip").write_bytes(content)
    with pytest.raises(DatasetError, match="another --from"):
        fetch("ml-100k", tmp_path / "data", source=f"{url}/x.zip", md5=md5(content))
    assert list((tmp_path / "data").iterdir()) == []


def test_an_address_that_does_not_answer_is_refused_with_the_way_around(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    _, url = served
    with pytest.raises(DatasetError, match=r"404.*--path"):
        fetch("ml-100k", tmp_path / "data", source=f"{url}/none.zip")
    with pytest.raises(DatasetError, match="cannot be reached"):
        fetch("ml-100k", tmp_path / "data", source="http://127.0.0.1:1/none.zip")
    assert "choose one of ml-100k, ml-1m" in refused("data", "fetch", "ml-2m")


def test_a_checksum_is_32_digits_and_no_two_are_the_same() -> None:
    sums = [one.md5 for one in ARCHIVES.values()]
    assert all(len(one) == 32 and set(one) <= set("0123456789abcdef") for one in sums)
    assert len(set(sums)) == len(sums)
