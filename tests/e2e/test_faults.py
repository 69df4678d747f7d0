"""What goes wrong around two real processes: a full disk, wrong clocks, a cut line, a second process.

Each test looks at what the operator sees (readiness, metrics, the log), and that nothing acknowledged is lost: the
round that was open ends published, with the exact sum of everything that was acknowledged.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx
import pytest
from tests.devices.over_http import Device, check_published, gather
from tests.e2e.namespace import namespace
from tests.e2e.servers import Server, Servers, secemb, set_up, wait_for
from tests.integration.databases import postgres_in

from secemb_lab.wire.proxy import proxy

pytestmark = pytest.mark.asyncio
DISK = 96 << 20  # bytes
RESERVE = 16 << 20
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
LARGE = {"items": 4000, "capacity": 300}  # bodies that need new pages of the database
LONG = {"join-seconds": 600, "upload-seconds": 900}  # a full cohort goes on at once


@contextmanager
def running(made: Servers) -> Iterator[Servers]:
    try:
        made.start()
        yield made
    finally:
        made.end()


def readiness(server: Server) -> dict[str, str]:
    """Return what `/readyz` says is wrong, by check."""
    answer = httpx.get(f"{server.metrics_url}/readyz", timeout=10.0)
    wrong = {one["check"]: one["hint"] for one in answer.json()["checks"] if not one["ok"]}
    assert (answer.status_code == 200) == (not wrong)
    return wrong


async def until(server: Server, check: str | None) -> None:
    """Wait until this check fails, or none does."""
    found = {check} if check is not None else set()
    await asyncio.to_thread(wait_for, f"{found} in /readyz", lambda: set(readiness(server)) == found, 90.0)


def metric(server: Server, name: str) -> float:
    lines = httpx.get(f"{server.metrics_url}/metrics", timeout=10.0).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def lines(server: Server, event: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in told if line["event"] == event]


async def finish(servers: Servers, devices: list[Device], *, roles: Sequence[int] = (0, 1)) -> None:
    """Let everyone send their update, and see that the round is published with all of them.

    A ledger in PostgreSQL is not looked into: `roles` are the servers whose is a file.
    """
    for device in devices:
        await device.send_update()
    number = devices[0].session.round.number
    states = [servers.pair[role].state for role in roles]
    await asyncio.to_thread(
        wait_for, "the round is published", lambda: {state(number) for state in states} == {"published"}, 90.0
    )
    check_published(servers, devices)
    for device in devices:
        await device.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk that can be filled; not in pytest's folders, which only their owner may enter: PostgreSQL is another."""
    folder = Path(mkdtemp(prefix="secemb-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def fill(folder: Path, *, leave: int) -> Path:
    """Write a file that leaves so many bytes free."""
    file = folder / "ballast"
    room = os.statvfs(folder)
    with file.open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize - leave)
    return file


@pytest.mark.parametrize("role", [0, 1])
async def test_a_server_without_room_refuses_new_sessions_ends_the_begun_ones_and_recovers(
    role: int, tmp_path: Path, small_disk: Path
) -> None:
    made = await asyncio.to_thread(set_up, tmp_path, changes=LONG)
    victim = made.pair[role]
    shutil.move(victim.folder / "data", small_disk / "data")
    (victim.folder / "data").symlink_to(small_disk / "data")
    victim.variables["SECEMB_STORAGE__MIN_FREE_BYTES"] = str(RESERVE)
    with running(made):
        devices = [Device(made, number, patience=150.0) for number in range(4)]
        for device in devices[:3]:
            await device.join()
            await device.send_keys()
        ballast = fill(small_disk, leave=RESERVE // 2)
        await until(victim, "storage")
        assert "min_free_bytes" in readiness(victim)["storage"]
        checked = await asyncio.to_thread(secemb, "check", victim.folder, "--offline")
        assert re.search(r"^warn space .*min_free_bytes", checked, re.MULTILINE)
        assert metric(victim, "secemb_disk_free_bytes") < metric(victim, "secemb_disk_reserve_bytes") == RESERVE
        if role == 0:
            path = f"/v1/tasks/{made.task.task_id.hex()}/join"
            answer = await devices[3].clients[0].post(path, json={"session": devices[3].session_id.hex()})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
        await devices[0].send_update()  # what has begun may end
        wait_for("the log tells it", lambda: lines(victim, "new sessions are refused") != [])
        ballast.unlink()
        ballast = fill(small_disk, leave=0)  # nothing more can be written at all
        late = asyncio.create_task(devices[1].send_update())
        await asyncio.sleep(2.0)
        assert not late.done()
        assert victim.is_alive()
        await asyncio.to_thread(victim.stop)
        ballast.unlink()
        ballast = fill(small_disk, leave=0)
        await asyncio.to_thread(victim.start)  # it may not even be able to open its ledger, and stays up
        wrong = readiness(victim)
        assert wrong.keys() & {"ledger", "storage"}
        if "ledger" in wrong:
            assert (await devices[3].clients[role].put("/v1/anything", content=never())).status_code == 503
        assert not late.done()
        ballast.unlink()
        await late
        await until(victim, None)
        await devices[3].join()
        await devices[3].send_keys()
        await finish(made, devices)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_the_first_start_on_a_full_disk_says_so_and_goes_on_once_there_is_room(
    database: str, tmp_path: Path, small_disk: Path
) -> None:
    with ExitStack() as beside:
        databases = {}
        if database == "postgresql":
            postgres = beside.enter_context(postgres_in(small_disk / "postgres"))
            databases[0] = postgres.empty_database().replace("postgres:@", "postgres@")
        made = await asyncio.to_thread(set_up, tmp_path, databases=databases)
        zero = made.pair[0]
        if database == "sqlite":
            (small_disk / "data").mkdir(mode=0o700)
            shutil.rmtree(zero.folder / "data", ignore_errors=True)
            (zero.folder / "data").symlink_to(small_disk / "data")
            zero.variables["SECEMB_STORAGE__MIN_FREE_BYTES"] = str(RESERVE)
        ballast = fill(small_disk, leave=0)
        beside.callback(made.end)
        for server in made.pair:
            server.launch()
        for server in made.pair:
            server.await_alive()
        assert re.search("full.*; free up disk space", readiness(zero)["ledger"])
        assert metric(zero, "secemb_ledger_full") == 1
        assert len(lines(zero, "the server cannot start")) == 1
        ballast.unlink()
        ready = partial(zero.get, "/readyz")
        await asyncio.to_thread(wait_for, "it starts by itself", lambda: ready() == 200, 90.0)
        assert len(lines(zero, "the server is starting")) == 1
        if database == "sqlite":  # this ledger is new
            names = [f"phone-{number}" for number in range(4)]
            made_again = await asyncio.to_thread(secemb, "token", "create", *names, "--config", zero.folder, "--json")
            made.tokens[:] = [row["token"] for row in json.loads(made_again)]
        devices = [Device(made, number, patience=150.0) for number in range(4)]
        for device in devices:
            await device.join()
            await device.send_keys()
        await finish(made, devices, roles=[1])


async def never() -> AsyncIterator[bytes]:
    """A body that does not arrive: an answer must come before it is read."""
    await asyncio.sleep(60.0)
    yield b""


async def test_a_full_disk_of_postgresql_and_a_start_without_it_are_seen_and_survived(
    tmp_path: Path, small_disk: Path
) -> None:
    with postgres_in(small_disk / "postgres") as postgres:
        url = postgres.empty_database().replace("postgres:@", "postgres@")
        made = await asyncio.to_thread(set_up, tmp_path, changes=LONG | LARGE, databases={0: url})
        zero = made.pair[0]
        with running(made):
            devices = [Device(made, number, patience=150.0) for number in range(4)]
            for device in devices[:3]:
                await device.join()
                await device.send_keys()
            ballast = fill(small_disk, leave=0)
            late = [asyncio.create_task(device.send_update()) for device in devices[:3]]
            await until(zero, "storage")
            assert "the ledger's database is full" in readiness(zero)["storage"]
            assert metric(zero, "secemb_ledger_full") == 1
            path = f"/v1/tasks/{made.task.task_id.hex()}/join"
            answer = await devices[0].clients[0].post(path, content=never())
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
            await asyncio.to_thread(wait_for, "it is told", lambda: lines(zero, "new sessions are refused") != [])
            assert len(lines(zero, "the ledger is failing")) == 1  # although other calls work in between
            zero.kill()
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(zero.start)
            assert "PostgreSQL cannot be reached" in readiness(zero)["ledger"]
            assert zero.get("/v1/anything", zero.url) == 503
            assert len(lines(zero, "the server cannot start")) == 1
            assert not any(task.done() for task in late)
            ballast.unlink()
            await asyncio.to_thread(postgres.start)
            await asyncio.gather(*late)
            await devices[3].join()
            await devices[3].send_keys()
            await finish(made, devices, roles=[1])


async def test_clocks_that_differ_are_seen_on_both_servers(tmp_path: Path) -> None:
    if FAKETIME is None:
        pytest.skip("there is no libfaketime; on Debian: apt-get install faketime")
    made = await asyncio.to_thread(set_up, tmp_path)
    made.pair[1].variables |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+300s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    try:
        for server in made.pair:
            server.launch()
        for server in made.pair:
            server.await_alive()
        for server, word, sign in zip(made.pair, ("ahead", "behind"), (1, -1), strict=True):
            await until(server, "clock")
            assert word in readiness(server)["clock"]
            assert sign * metric(server, "secemb_clock_skew_seconds") == pytest.approx(300, abs=15)
            assert len(lines(server, "the two servers' clocks differ")) == 1
        made.pair[1].kill()
        made.pair[1].variables.clear()
        made.pair[1].start()
        for server in made.pair:
            await until(server, None)
        assert len(lines(made.pair[0], "the two servers' clocks agree again")) == 1
    finally:
        made.end()


async def test_a_cut_line_is_told_once_with_its_cause_and_the_round_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    made = await asyncio.to_thread(set_up, tmp_path, changes=LONG)
    zero = made.pair[0]
    try:
        async with proxy(made.peer_port) as (port, _):
            zero.variables["SECEMB_PEER__URL"] = f"https://127.0.0.1:{port}"
            await asyncio.to_thread(made.start)
            devices = await gather(made)
        for device in devices:
            await device.send_update()
        await asyncio.to_thread(wait_for, "server 0 waits", lambda: lines(zero, "waiting") != [])
        await until(zero, "peer")
        await asyncio.sleep(3.0)
        assert len(lines(zero, "waiting")) <= 3  # one for each cause, however often it was tried
        assert "server 1" in lines(zero, "waiting")[0]["reason"]
        async with proxy(made.peer_port, port=port):
            await finish(made, devices)
            await asyncio.to_thread(wait_for, "the log tells it", lambda: lines(zero, "no longer waiting") != [])
            assert lines(zero, "server 1 is responding again") != []
            await asyncio.to_thread(made.end)
    finally:
        made.end()


async def test_a_line_on_which_packets_vanish_is_told_and_the_round_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    with namespace() as elsewhere:
        made = await asyncio.to_thread(set_up, tmp_path, changes=LONG, there=elsewhere.far)
        zero, one = made.pair
        one.inside = elsewhere.command
        zero.variables["SECEMB_PEER__ANSWER_SECONDS"] = "5"  # a call that was on its way ends then
        with running(made):
            devices = await gather(made)
            for device in devices:
                await device.send_update([1])
            for device in devices[:-1]:
                await device.send_update([0])
            elsewhere.cut()
            await devices[-1].send_update([0])  # with it the round is full, and server 0 asks server 1 to seal it
            await until(zero, "peer")
            events = ("waiting", "server 1 is not responding")
            await asyncio.to_thread(wait_for, "the log tells it", lambda: all(lines(zero, event) for event in events))
            assert "in time" in lines(zero, "server 1 is not responding")[-1]["reason"]
            assert "in time" in readiness(zero)["peer"]
            elsewhere.mend()
            await finish(made, devices)


async def test_a_second_process_on_the_same_ledger_is_refused_on_either_server(tmp_path: Path) -> None:
    made = await asyncio.to_thread(set_up, tmp_path)
    with running(made):
        for server in made.pair:
            command = [sys.executable, "-m", "secemb_tools", "serve", "--config", str(server.folder)]
            second = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
            assert second.returncode == 1
            assert "another server process is using this ledger" in second.stderr
        for server in made.pair:
            await until(server, None)
