"""Both clients against two real servers: the same bytes, recommendations, cancellation and refusals."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.servers import Servers, set_up

from secemb_sdk import BlockingDevice, Contributed, Device, NotNow, Outcome, Policy
from secemb_sdk.errors import EnrolmentError, HomeInUseError, PinError

QUICK = Policy(pace_seconds=0.0, seconds=30.0)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start two servers whose first round stays open through all tests: it waits for more devices than there are."""
    changes: dict[str, object] = {
        "dense-size": 0,
        "cohort": 40,
        "min-cohort": 2,
        "join-seconds": 600,
        "upload-seconds": 600,
    }
    running = set_up(tmp_path_factory.mktemp("clients"), devices=8, changes=changes)
    try:
        running.start()
        yield running
    finally:
        running.end()


class Fixed:
    """The same random bytes for every device that is given the same name."""

    def __init__(self, name: str) -> None:
        self._name, self._calls = name, 0

    def __call__(self, count: int) -> bytes:
        self._calls += 1
        return hashlib.shake_256(f"{self._name} {self._calls}".encode()).digest(count)


def options(running: Servers, home: Path, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "home": home,
        "servers": (running.pair[0].url, running.pair[1].url),
        "task": running.task.task_id.hex(),
        "token": running.tokens[number],
        "policy": QUICK,
    } | changes


async def until_done(device: Device) -> Contributed:
    for _ in range(40):
        outcome = await device.contribute()
        if isinstance(outcome, Contributed):
            return outcome
        await asyncio.sleep(0.5)
    raise AssertionError("the device does not come in")


def digests(servers: Servers, role: int) -> list[tuple[str, str]]:
    rows = servers.pair[role].ask("SELECT hex(keys_digest), hex(update_digest) FROM sessions ORDER BY session_id")
    return [(row[0], row[1]) for row in rows]


def test_blocking_and_async_send_the_same_bytes(servers: Servers, tmp_path: Path) -> None:
    """With the same random bytes and token the servers take the second device for a resend of the first: any bit that
    differed would be refused with 409."""
    ratings = {3: 4.0, 17: 1.0, 300: 5.0}

    async def first() -> Outcome:
        async with Device.open(**options(servers, tmp_path / "a", 0, random_bytes=Fixed("same"))) as device:
            device.log_many(ratings)
            return await until_done(device)

    contributed = asyncio.run(first())
    held = [digests(servers, role) for role in (0, 1)]
    with Device.open_blocking(**options(servers, tmp_path / "b", 0, random_bytes=Fixed("same"))) as device:
        assert isinstance(device, BlockingDevice)
        device.log_many(ratings)
        again = device.contribute()
    assert isinstance(again, Contributed)
    assert isinstance(contributed, Contributed)
    assert (again.receipt.sent, again.receipt.received) == (contributed.receipt.sent, contributed.receipt.received)
    assert [digests(servers, role) for role in (0, 1)] == held
    with Device.open_blocking(**options(servers, tmp_path / "c", 0, random_bytes=Fixed("same"))) as other:
        other.log_many({3: 4.0, 17: 1.0})
        assert not isinstance(other.contribute(), Contributed)  # with another taste the servers do notice


def test_a_cancelled_round_goes_on_where_it_stopped(servers: Servers, tmp_path: Path) -> None:
    slow = Policy(pace_seconds=20.0)  # between the keys and the update; a tenth of it comes before the keys

    async def cut() -> None:
        async with Device.open(**options(servers, tmp_path / "home", 1, policy=slow)) as device:
            device.log(item=5, rating=2.0)
            running = asyncio.create_task(device.contribute())
            while (device.export()["session"] or {}).get("stage") != "update":
                assert not running.done()
                await asyncio.sleep(0.05)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(cut())
    before = digests(servers, 0)

    async def go_on() -> Contributed:
        async with Device.open(**options(servers, tmp_path / "home", 1)) as device:
            return await until_done(device)

    assert asyncio.run(go_on()).receipt.complete
    assert len(digests(servers, 0)) == len(before)  # the same session


def test_ten_lines_are_enough(servers: Servers, tmp_path: Path) -> None:
    async def app() -> None:
        async with Device.open(
            home=tmp_path / "home",
            servers=(servers.pair[0].url, servers.pair[1].url),
            task=servers.task.task_id.hex(),
            token=servers.tokens[2],
        ) as device:
            device.log(item=318, rating=5.0)
            outcome = await device.contribute()
            best = await device.recommend(k=10)
            ranked = await device.rank([1, 2, 3, 318])
        assert isinstance(outcome, Contributed), outcome
        assert len(best) == 10
        assert 318 not in {one.item for one in best}
        assert sorted(one.item for one in ranked) == [1, 2, 3]

    asyncio.run(app())


def test_a_device_that_has_taken_part_is_told_when_to_come_back(servers: Servers, tmp_path: Path) -> None:
    with Device.open_blocking(**options(servers, tmp_path / "home", 3)) as device:
        assert isinstance(device.contribute(), Contributed)
        again = device.contribute()
        assert isinstance(again, NotNow)
        assert again.seconds >= 1
        assert len(device.receipts()) == 1


def test_a_token_that_nobody_knows_is_an_error(servers: Servers, tmp_path: Path) -> None:
    with (
        Device.open_blocking(**options(servers, tmp_path / "home", 4, token="unknown")) as device,
        pytest.raises(EnrolmentError),
    ):
        device.contribute()


def test_the_servers_in_the_wrong_order_are_noticed(servers: Servers, tmp_path: Path) -> None:
    """Nobody joins at server 1: there is no such route."""
    reversed_ = (servers.pair[1].url, servers.pair[0].url)
    policy = Policy(pace_seconds=0.0, seconds=5.0)
    with Device.open_blocking(**options(servers, tmp_path / "home", 5, servers=reversed_, policy=policy)) as device:
        outcome = device.contribute()
    assert isinstance(outcome, NotNow)
    assert "which server is 0" in outcome.reason


def test_a_home_is_held_by_one_device_and_belongs_to_its_task(servers: Servers, tmp_path: Path) -> None:
    with Device.open_blocking(**options(servers, tmp_path / "home", 6)):
        opening = Device.open_blocking(**options(servers, tmp_path / "home", 6))
        with pytest.raises(HomeInUseError):
            opening.__enter__()
    other = Device.open_blocking(**options(servers, tmp_path / "home", 6, task="00" * 32))
    with pytest.raises(PinError, match="another task"):
        other.__enter__()
    with Device.open_blocking(**options(servers, tmp_path / "home", 6)) as device:
        assert device.receipts() == []


def test_an_encrypted_home_goes_through_a_round(servers: Servers, tmp_path: Path) -> None:
    with Device.open_blocking(**options(servers, tmp_path / "home", 7, key=bytes(32))) as device:
        device.log(item=44, rating=3.0)
        assert isinstance(device.contribute(), Contributed)
        device.forget()
        exported = device.export()
    assert (exported["ratings"], exported["private"], len(exported["receipts"])) == ([], None, 1)
