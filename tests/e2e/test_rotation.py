"""Every certificate and the bearer of a pair change while rounds run: nothing fails, and the old ones end."""

import asyncio
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.e2e.commands import refused, run
from tests.e2e.place import RUNNING
from tests.unit.authority import Authority

from secemb_sdk import Contributed, Device, NotNow, Outcome
from secemb_tools.local import Pair

pytestmark = pytest.mark.asyncio
TASK = replace(RUNNING, join_seconds=300, upload_seconds=600)  # a round is over when its two devices are done
PATIENCE = 120.0  # seconds


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("rotation") / "pair", TASK, relayed=True, tls=True)
    assert made.ca is not None
    made.ca.write_bytes(authority.pem)
    for server in made.servers:
        show_devices(server.folder, authority)
    with made.running():
        yield made


def show_devices(folder: Path, authority: Authority) -> None:
    """Give a server a new certificate for devices and operators, as the program does that renews it."""
    cert, key = authority.issue()
    shutil.copy2(key, folder / "secrets" / "devices.key")
    shutil.copy2(cert, folder / "tls" / "devices.crt")


def published(pair: Pair) -> int:
    """Return how many rounds are published on both sides, and check that none was lost."""
    rounds = [server.ask("rounds?limit=200") for server in pair.servers]
    assert not [one for found in rounds for one in found if one["state"] == "aborted"]
    return min(len([one for one in found if one["state"] == "published"]) for found in rounds)


async def two_more_rounds(pair: Pair) -> None:
    """Wait until rounds have begun and ended since."""
    wanted = await asyncio.to_thread(published, pair) + 3  # the first of them may have begun before
    end = time.monotonic() + PATIENCE
    while await asyncio.to_thread(published, pair) < wanted:
        assert time.monotonic() < end, "rounds do not go on"
        await asyncio.sleep(0.2)


@asynccontextmanager
async def devices_at_work(pair: Pair, folder: Path) -> AsyncIterator[list[Outcome]]:
    """Let one device send through server 0 and one to both servers, round after round; collect what comes of it."""
    outcomes: list[Outcome] = []

    async def work(name: str, transport: str) -> None:
        async with Device.open(
            home=folder / name,
            servers=pair.urls,
            task=pair.task.task_id.hex(),
            ca=pair.ca,
            transport="relayed" if transport == "relayed" else "direct",
        ) as device:
            device.log_many({3: 5.0, 17: 1.0, 90: 4.0})
            while True:
                outcomes.append(await device.contribute())
                if not isinstance(outcomes[-1], Contributed):
                    await asyncio.sleep(0.1)

    workers = [asyncio.create_task(work(name, name)) for name in ("relayed", "direct")]
    try:
        yield outcomes
    finally:
        for worker in workers:
            worker.cancel()
        ended = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


async def exchange(pair: Pair, folder: Path) -> None:
    """Let both operators import each other's pair file."""
    for mine, other in (pair.servers, reversed(pair.servers)):
        path = folder / f"{mine.role}.json"
        path.write_text(await asyncio.to_thread(run, "pair", "export", mine.folder))
        await asyncio.to_thread(run, "pair", "import", "--replace", other.folder, path)


def peer_call(pair: Pair, folder: Path, token: str) -> Callable[[], int]:
    """Return a call to server 1 with the certificate, the key and the authority that are in a folder."""

    def call() -> int:
        context = ssl.create_default_context(cafile=str(folder / "server1.crt"))
        context.load_cert_chain(folder / "peer.crt", folder / "peer.key")
        headers = {"authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{pair.peer_port}/peer/v1/standing"
        return httpx.get(url, headers=headers, verify=context, timeout=30).status_code

    return call


def copy_of_keys(pair: Pair, folder: Path) -> str:
    """Copy what server 0 uses now; return its bearer."""
    home = pair.servers[0].folder
    folder.mkdir()
    for path in (home / "tls" / "peer.crt", home / "tls" / "server1.crt", home / "secrets" / "peer.key"):
        shutil.copy2(path, folder)
    return (home / "secrets" / "peer.token").read_text().strip()


async def shown_certificate(url: str) -> str:
    """Return the certificate that a listener shows."""
    host, port = url.removeprefix("https://").split(":")
    return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))


async def test_operators_name_the_authority_of_a_server(
    pair: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = pair.servers[0]
    monkeypatch.setenv("OPERATOR_TOKEN", server.operator_token)
    place = ("--server", server.operator_url)
    for command in (("status",), ("privacy", "show"), ("model", "rollback", 0, "--yes")):
        said = await asyncio.to_thread(refused, *command, *place)
        assert f"{server.operator_url} has a certificate from an unknown authority" in said
    assert "role" in await asyncio.to_thread(run, "status", *place, "--ca", authority.file, "--json")
    said = await asyncio.to_thread(refused, "model", "rollback", 7, "--yes", *place, "--ca", authority.file)
    assert "refuses" in said  # there is no version 7
    await asyncio.to_thread(run, "privacy", "show", *place, "--ca", authority.file)
    metrics = (await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{server.ports.metrics}/metrics")).text
    for of in ("own", "peer", "devices", "operator"):
        assert f'secemb_expiry_timestamp_seconds{{of="{of}-certificate"}}' in metrics


async def test_everything_is_changed_while_rounds_run_and_no_session_fails(
    pair: Pair, authority: Authority, tmp_path: Path
) -> None:
    zero, one = (server.folder for server in pair.servers)
    old = copy_of_keys(pair, tmp_path / "old")
    assert await asyncio.to_thread(peer_call(pair, tmp_path / "old", old)) == 200
    listeners = [url for server in pair.servers for url in (server.url, server.operator_url)]
    shown = {url: await shown_certificate(url) for url in listeners}
    async with devices_at_work(pair, tmp_path) as outcomes:
        await two_more_rounds(pair)
        # Server 0 may have been up a moment before server 1, and may have said so.
        earlier = [len(server.log.read_text()) for server in pair.servers]
        for folder in (zero, one):
            await asyncio.to_thread(run, "pair", "rotate", folder)
        # Server 1 has not heard of the next keys: they would be refused.
        assert "does not accept the next certificate" in await asyncio.to_thread(refused, "pair", "switch", zero)
        await exchange(pair, tmp_path)
        await two_more_rounds(pair)
        for folder in (zero, one):
            await asyncio.to_thread(run, "pair", "switch", folder)
        await two_more_rounds(pair)
        await exchange(pair, tmp_path)
        for folder in (zero, one):
            show_devices(folder, authority)
        await two_more_rounds(pair)
    assert not [one for one in outcomes if not isinstance(one, Contributed) and "no round" not in one.reason], outcomes
    assert all(isinstance(one, Contributed | NotNow) for one in outcomes)
    for url in listeners:
        assert await shown_certificate(url) != shown[url], url
    new = copy_of_keys(pair, tmp_path / "new")
    assert await asyncio.to_thread(peer_call(pair, tmp_path / "new", new)) == 200
    assert await asyncio.to_thread(peer_call(pair, tmp_path / "new", old)) == 401
    shutil.copy2(tmp_path / "new" / "server1.crt", tmp_path / "old")
    with pytest.raises(httpx.TransportError):
        await asyncio.to_thread(peer_call(pair, tmp_path / "old", new))
    for server, start in zip(pair.servers, earlier, strict=True):
        warnings = [line for line in server.log.read_text()[start:].splitlines() if '"level": "warning"' in line]
        assert not [line for line in warnings if "peer" in line.lower() or "cannot reload" in line], warnings
