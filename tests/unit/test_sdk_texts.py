"""Texts in a home: order, odd clocks, forgetting, export, encryption, and what is no text."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.sessions import make_task

from secemb_sdk.context import Context
from secemb_sdk.device import Owned
from secemb_sdk.errors import DamagedError, RatingError
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.records import Record, decode_texts
from secemb_sdk.home.vault import Vault

TASK = make_task()


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def device_in(folder: Path, clock: Clock | None = None, key: bytes | None = None) -> Owned:
    vault = Vault(Home(folder, FileCipher(key)))
    vault.bind(TASK.task_id, ("http://one", "http://two"))
    return Owned(Context(vault=vault, task_id=TASK.task_id, wall_clock=clock or Clock()))


def texts_of(device: Owned) -> list[str]:
    return [one["text"] for one in device.export()["texts"]]


def test_texts_are_in_time_order_and_equal_times_keep_the_order_of_logging(tmp_path: Path) -> None:
    device = device_in(tmp_path)
    device.log_text("later", at=30.0)
    device.log_text("first", at=10.0)
    device.log_texts([("second", 10.0), ("later", 40.0)])  # the same text may be written again
    assert texts_of(device) == ["first", "second", "later", "later"]
    assert [one["at"] for one in device.export()["texts"]] == [10.0, 10.0, 30.0, 40.0]


@pytest.mark.parametrize("jump", [-500.0, 0.0, 500.0])
def test_a_text_without_a_time_is_the_newest_though_the_clock_has_jumped(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    device = device_in(tmp_path, clock)
    device.log_text("one")
    clock.now += jump
    device.log_texts([("two", None), ("three", None)])
    assert texts_of(device) == ["one", "two", "three"]


def test_texts_are_on_disk_as_they_were_written_until_they_are_forgotten(tmp_path: Path) -> None:
    device = device_in(tmp_path)
    written = ["Don’t — “stop”!", "", " \n", "我 👍\ud800", "x" * 10_000]
    device.log_texts([(one, None) for one in written])
    device._context.vault.close()
    again = device_in(tmp_path)
    assert texts_of(again) == written
    again.forget()
    assert texts_of(again) == []
    assert not (tmp_path / "texts").exists()


def test_an_encrypted_home_shows_no_word(tmp_path: Path) -> None:
    device = device_in(tmp_path, key=bytes(range(16)))
    device.log_text("a very private remark")
    assert texts_of(device) == ["a very private remark"]
    assert not any(b"private remark" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "remark" not in repr(device._context.vault.texts())


@pytest.mark.parametrize(("text", "at"), [(7, None), (None, None), (b"x", None), ("x", float("nan")), ("x", "now")])
def test_what_is_no_text_or_no_time_is_refused_and_nothing_is_stored(tmp_path: Path, text: Any, at: Any) -> None:
    device = device_in(tmp_path)
    with pytest.raises(RatingError):
        device.log_texts([("good", None), (text, at)])
    assert texts_of(device) == []


def test_a_damaged_record_of_texts_is_refused() -> None:
    with pytest.raises(DamagedError, match="forget"):
        decode_texts(Record({"texts": ["a"]}, {"times": b""}))
