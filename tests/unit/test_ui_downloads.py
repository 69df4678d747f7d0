"""A model that is taken away from the page leaves nothing behind, however the download ends."""

import os
import tempfile
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from safetensors.numpy import load
from starlette.requests import ClientDisconnect
from tests.unit.operator_desk import Desk, a_desk

from secemb_party.storage import Model
from secemb_party.ui.render import Download, nameless

pytestmark = pytest.mark.asyncio

CONTENT = bytes(range(256)) * 1024


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of this test's own that temporary files go to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write(path: Path) -> None:
    path.write_bytes(CONTENT)


@pytest.mark.parametrize("wanted", ["", "bytes=x", "bytes=9-1", "bytes=999999999-", "bytes=0-3", "lines=1-2"])
async def test_an_export_is_whole_and_leaves_no_file_whatever_range_is_asked_for(
    desk: Desk, temporary: Path, wanted: str
) -> None:
    async with desk.logged_in(1) as browser:
        answer = await browser.get("/ui/model/1/export", headers={"range": wanted} if wanted else {})
    assert answer.status_code == 200
    assert (load(answer.content)["rows"] == desk.pair.parties[1].models.load(1).rows).all()
    assert left_in(temporary) == []


async def test_an_export_that_fails_leaves_no_file(
    desk: Desk, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_model: Model, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr("secemb_party.ui.pages.export_weights", fail)
    async with desk.logged_in(1) as browser:
        assert (await browser.get("/ui/model/1/export")).status_code == 500
    assert left_in(temporary) == []


async def test_a_download_that_is_cut_leaves_neither_a_file_nor_a_handle(temporary: Path) -> None:
    file = nameless(write)
    assert left_in(temporary) == []  # gone already, and can still be read
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if message.get("body"):
            raise OSError("the browser has gone")

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nobody has anything to say")

    with pytest.raises(ClientDisconnect):
        await Download(file, "model.safetensors")(
            {"type": "http", "asgi": {"spec_version": "2.4"}, "method": "GET"}, receive, send
        )
    assert len(sent) == 2
    assert file.closed


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("mf on made up-v3.safetensors", "mf-on-made-up-v3.safetensors"),
        ('a"b\r\nx: y', "a-b-x-y"),
        ("../../etc", "etc"),
        ("…", "download"),
    ],
)
async def test_the_name_of_a_download_is_one_that_every_file_system_takes(name: str, plain: str) -> None:
    with nameless(write) as file:
        answer = Download(file, name)
        assert answer.headers["content-disposition"] == f'attachment; filename="{plain}"'
        assert answer.headers["content-length"] == str(len(CONTENT)) == str(os.fstat(file.fileno()).st_size)
