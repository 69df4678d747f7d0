"""How a device is opened: what is refused before anything is touched, and what is never shown."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loopback import answer, serving, write_identity

from secemb_sdk import Device, Policy
from secemb_sdk.errors import (
    AddressError,
    EnrolmentError,
    EventLoopError,
    HomeInUseError,
    HomeKeyError,
    PinError,
    PolicyError,
)
from secemb_sdk.home.detections import Detection

TASK = "ab" * 32
SERVERS = ("https://zero.example", "https://one.example")


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"pace_seconds": -1.0},
        {"pace_seconds": 120.0},
        {"pace_seconds": float("nan")},
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(PolicyError):
        Policy(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"servers": ("http://zero.example", SERVERS[1])}, AddressError),
        ({"servers": (SERVERS[0], SERVERS[0] + ":443/")}, AddressError),
        ({"servers": SERVERS[:1]}, AddressError),
        ({"task": TASK.upper()}, PinError),
        ({"task": TASK[:-1]}, PinError),
        ({"pins": ((),)}, PinError),
        ({"token": "two\nlines"}, EnrolmentError),
        ({"token": "t\u00f6ken"}, EnrolmentError),
        ({"hold_out": 1.0}, PolicyError),
        ({"hold_out": -0.1}, PolicyError),
        ({"epochs": 0}, PolicyError),
    ],
)
def test_an_opening_that_cannot_be_is_refused_before_anything_is_touched(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    good: dict[str, Any] = {"home": tmp_path / "home", "servers": SERVERS, "task": TASK}
    for opening in (Device.open, Device.open_blocking):
        with pytest.raises(error):
            opening(**good | changes)
    assert not (tmp_path / "home").exists()


def test_a_device_that_cannot_be_opened_lets_go_of_its_home(tmp_path: Path) -> None:
    good: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    for wrong, error in (({"key": b"short"}, HomeKeyError), ({"pins": (("short",), ())}, PinError)):
        opening = Device.open_blocking(**good | wrong)
        with pytest.raises(error):
            opening.__enter__()
    with Device.open_blocking(**good) as device:
        device.log(item=1, rating=2.0)


def test_an_opening_and_a_device_show_no_secret(tmp_path: Path) -> None:
    opening = Device.open_blocking(home=tmp_path, servers=SERVERS, task=TASK, token="hush", key=b"sixteen bytes ok")
    with opening as device:
        device.log(item=4711, rating=2.0)
        shown = repr(opening) + repr(device)
    assert not any(secret in shown for secret in ("hush", "sixteen", "4711"))


@pytest.mark.parametrize("blocking", [True, False])
def test_a_device_raises_and_counts_it_when_a_pin_does_not_hold(tmp_path: Path, blocking: bool) -> None:
    both, alone, _ = write_identity(tmp_path, "server")

    async def contribute(**opening: Any) -> list[Detection]:
        async with Device.open(**opening) as device:
            with pytest.raises(PinError, match="nothing was sent"):
                await device.contribute()
            return device.detections()

    def contribute_blocking(**opening: Any) -> list[Detection]:
        with Device.open_blocking(**opening) as device:
            with pytest.raises(PinError, match="nothing was sent"):
                device.contribute()
            return device.detections()

    with serving(answer(b"{}"), identity=both) as zero, serving(answer(b"{}"), identity=both) as one:
        opening: dict[str, Any] = {"home": tmp_path / "home", "servers": (zero.url, one.url), "task": TASK}
        opening |= {"ca": alone, "pins": (("00" * 32,), ())}
        for count in (1, 2):
            found = contribute_blocking(**opening) if blocking else asyncio.run(contribute(**opening))
            assert [(one.kind, one.count) for one in found] == [("server-key", count)]
        assert zero.everything == b""


def test_a_blocking_device_is_opened_and_closed_without_with(tmp_path: Path) -> None:
    opening: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    device = Device.open_blocking(**opening).open()
    device.log_many({1: 2.0, 7: 4.5})
    with pytest.raises(HomeInUseError):
        Device.open_blocking(**opening).open()
    device.close()
    device.close()
    again = Device.open_blocking(**opening).open()
    assert again.ratings() == {1: 2.0, 7: 4.5}
    again.close()


@pytest.mark.asyncio
async def test_a_device_is_opened_and_closed_without_with(tmp_path: Path) -> None:
    opening: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    device = await Device.open(**opening).open()
    device.log(item=1, rating=2.0)
    await device.close()
    await device.close()
    async with Device.open(**opening) as again:
        assert again.ratings() == {1: 2.0}


def test_one_rating_is_removed_with_its_events_and_others_stay(tmp_path: Path) -> None:
    opening: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    with Device.open_blocking(**opening) as device:
        device.log_many({1: 2.0, 7: 4.5})
        device.log_events([(7, 1.0), (9, 2.0), (7, 3.0)])
        assert device.remove(item=7)
        assert not device.remove(item=7)
        assert device.remove(item=1)
    with Device.open_blocking(**opening) as device:  # it is gone from the disk too
        assert device.ratings() == {}
        assert [one["item"] for one in device.export()["events"]] == [9]


@pytest.mark.asyncio
async def test_a_blocking_device_refuses_to_stop_an_event_loop(tmp_path: Path) -> None:
    opening: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    with pytest.raises(EventLoopError, match=r"async with Device\.open"):
        Device.open_blocking(**opening).open()
    device = await asyncio.to_thread(Device.open_blocking(**opening).open)
    with pytest.raises(EventLoopError):
        device.contribute()
    await asyncio.to_thread(device.close)
