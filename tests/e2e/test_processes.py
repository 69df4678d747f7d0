"""Two real processes with mutual TLS, killed and restarted at every point of a round.

Everything is set up by the commands that docs/operating.md names. Rounds have four devices that all send their updates
to both servers and keep the receipts, so every round must end published with the sum of all four: an acknowledged
update that is lost, or counted twice, shows in the numbers.
"""

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.devices.over_http import Device, TwoFacedDevice, check_published, gather
from tests.e2e.servers import Server, Servers, set_up, wait_for
from tests.e2e.standstill import await_caught, caught_entering, step_until
from tests.integration.databases import Postgres

from secemb_party.http.health import FRESH_SECONDS
from secemb_party.settings import load_settings
from secemb_server0.app import peer_client
from secemb_tools.operate.certificate import make_identity

pytestmark = pytest.mark.asyncio

STATES = ["open", "sealing", "sealed", "shared", "reconstructed"]
LEFT_ALONE = {(0, "sealed"): "shared", (1, "reconstructed"): "published"}  # without asking the other server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = set_up(tmp_path_factory.mktemp("pair"))
    try:
        made.start()
        yield made
    finally:
        made.end()


async def finish(servers: Servers, devices: list[Device]) -> None:
    """Wait until the devices' round has ended on both sides, and look at the sum."""
    number = devices[0].session.round.number
    for server in servers.pair:
        await until_ended(server, number)
    assert [server.state(number) for server in servers.pair] == ["published", "published"]
    check_published(servers, devices)
    for device in devices:
        await device.close()


async def until_ended(server: Server, number: int) -> None:
    ended = {"published", "aborted"}
    await asyncio.to_thread(
        wait_for, f"round {number} ends on server {server.role}", lambda: server.state(number) in ended
    )


async def test_rounds_of_two_processes_end_published_with_exact_sums(servers: Servers) -> None:
    for _ in range(2):
        devices = await gather(servers)
        for device in devices:
            await device.send_update()
        await finish(servers, devices)
    assert all(server.get("/readyz") == 200 for server in servers.pair)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("role", [0, 1])
async def test_a_server_killed_in_any_state_loses_nothing_that_it_acknowledged(
    servers: Servers, role: int, state: str
) -> None:
    victim = servers.pair[role]
    devices = await gather(servers)
    number = devices[0].session.round.number
    for device in devices[:-1]:
        await device.send_update()
    if state == "open":
        assert victim.state(number) == state
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.launch)
        await devices[-1].send_update()
    else:
        await devices[-1].send_update([1])
        last = asyncio.create_task(devices[-1].send_update([0]))  # with it the round is full, and is sealed
        assert await kill_in(servers, victim, number, state, LEFT_ALONE.get((role, state))) == state
        await asyncio.to_thread(victim.launch)
        await last
    await finish(servers, devices)
    await asyncio.to_thread(victim.await_alive)


async def kill_in(servers: Servers, victim: Server, number: int, state: str, entering: str | None) -> str:
    """Kill a server when it has come to a state, or while it is entering the next; return where it stood."""
    if entering is not None:
        with caught_entering(victim, number, entering):
            await asyncio.to_thread(await_caught, victim, number, state)
            await asyncio.to_thread(victim.kill)
    else:
        await step_until(servers, victim, number, state)
        await asyncio.to_thread(victim.kill)
        servers.pair[1 - victim.role].send(signal.SIGCONT)
    return victim.state(number)


@pytest.mark.parametrize(("state", "entering"), [("sealing", None), ("sealing", "aborted"), ("aborted", None)])
@pytest.mark.parametrize("role", [0, 1])
async def test_a_server_killed_while_a_round_is_aborted_aborts_it_and_goes_on(
    servers: Servers, role: int, state: str, entering: str | None
) -> None:
    """Before, while and after it aborts: all have sent everything, but the servers agree on one session, not two."""
    victim = servers.pair[role]
    devices: list[Device] = [Device(servers, 0), *(TwoFacedDevice(servers, number) for number in (1, 2, 3))]
    number = [await device.join() for device in devices][-1]
    for device in devices:
        await device.send_keys()
    for device in devices[:-1]:
        await device.send_update()
    await devices[-1].send_update([1])
    last = asyncio.create_task(devices[-1].send_update([0]))
    assert await kill_in(servers, victim, number, state, entering) == state
    await asyncio.to_thread(victim.launch)
    await last
    for server in servers.pair:
        await until_ended(server, number)
    assert [server.state(number) for server in servers.pair] == ["aborted", "aborted"]
    for device in devices:
        await device.send_update()  # what was acknowledged is acknowledged again
        await device.close()
    after = await gather(servers)
    assert after[0].session.round.number == number + 1
    assert after[0].session.round.model_version == devices[0].session.round.model_version
    for device in after:
        await device.send_update()
    await finish(servers, after)
    await asyncio.to_thread(victim.await_alive)


async def test_both_servers_killed_at_once_take_the_round_up_again(servers: Servers) -> None:
    devices = await gather(servers)
    for device in devices:
        await device.send_update([1])
    for device in devices:
        await device.send_update([0])
    for server in servers.pair:
        server.kill()
    for server in servers.pair:
        server.launch()
    await finish(servers, devices)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Servers]:
    """A pair whose rounds do not wait long."""
    made = set_up(tmp_path, changes={"join-seconds": 1, "upload-seconds": 2})
    try:
        made.start()
        yield made
    finally:
        made.end()


async def test_a_round_with_too_few_devices_of_which_one_is_lost_is_aborted_on_both_sides(hasty: Servers) -> None:
    device, lost = Device(hasty, 0), Device(hasty, 1)
    number = await device.join()
    await lost.join()
    await lost.close()
    await device.send_keys()
    await device.send_update()
    for server in hasty.pair:
        await until_ended(server, number)
    assert [server.state(number) for server in hasty.pair] == ["aborted", "aborted"]
    wait_for("the next round opens", lambda: hasty.pair[1].state(number + 1) != "")
    await device.close()


@pytest.mark.parametrize("role", [0, 1])
async def test_sigterm_lets_a_request_in_flight_be_answered(servers: Servers, role: int) -> None:
    devices = await gather(servers)
    server, device = servers.pair[role], devices[0]
    begun, signalled = asyncio.Event(), asyncio.Event()
    assert device.updates is not None
    message = device.updates[role]

    async def slow_body() -> AsyncIterator[bytes]:
        yield message[:40]
        begun.set()
        await signalled.wait()
        yield message[40:]

    path = f"/v1/rounds/{device.session.round.digest.hex()}/sessions/{device.session_id.hex()}/update"
    headers = device.headers(role, "update") | {"content-length": str(len(message))}
    request = asyncio.create_task(device.clients[role].put(path, content=slow_body(), headers=headers))
    await begun.wait()
    while not await is_reading(server):
        pass
    server.send(signal.SIGTERM)
    await asyncio.sleep(0.5)
    signalled.set()
    answer = await request
    assert answer.status_code == 200, answer.text
    assert server.process is not None
    assert await asyncio.to_thread(server.process.wait, 30) == 0
    server.start()
    for device in devices:  # the first one resends what has been acknowledged already
        await device.send_update()
    await finish(servers, devices)


def peer_context(servers: Servers, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(servers.pair[1].folder / "tls" / "peer.crt"))
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


async def is_reading(server: Server) -> bool:
    """Tell whether a part of a message has arrived."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{server.metrics_url}/metrics")).text
    return "secemb_message_bytes 40.0" in text.splitlines()


async def has_seen(server: Server, method: str) -> bool:
    """Tell whether any app of this server was handed a request with this method, which nobody else uses here."""
    await asyncio.sleep(FRESH_SECONDS)  # metrics of an earlier moment would not tell
    async with httpx.AsyncClient() as client:
        return f'method="{method}"' in (await client.get(f"{server.metrics_url}/metrics")).text


async def delete_peer(servers: Servers, context: ssl.SSLContext) -> int:
    token = (servers.pair[0].folder / "secrets" / "peer.token").read_text().strip()
    async with httpx.AsyncClient(verify=context, headers={"authorization": f"Bearer {token}"}) as client:
        return (await client.delete(f"https://127.0.0.1:{servers.peer_port}/peer/v1/announce")).status_code


async def test_a_wrong_peer_certificate_is_refused_before_any_handler(servers: Servers, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    stranger = make_identity("127.0.0.1")
    cert.write_bytes(stranger.certificate)
    key.write_bytes(stranger.key)
    for context in (peer_context(servers, None, None), peer_context(servers, cert, key)):
        with pytest.raises(httpx.TransportError):
            await delete_peer(servers, context)
    assert not await has_seen(servers.pair[1], "DELETE")
    home = servers.pair[0].folder
    known = peer_context(servers, home / "tls" / "peer.crt", home / "secrets" / "peer.key")
    assert await delete_peer(servers, known) == 405
    assert await has_seen(servers.pair[1], "DELETE")


async def test_server_0_talks_to_no_stranger(servers: Servers, tmp_path: Path) -> None:
    """Whoever answers at server 1's address with another certificate gets nothing, not even the bearer."""
    stranger = make_identity("127.0.0.1")
    pem = tmp_path / "stranger.pem"
    pem.write_bytes(stranger.certificate + stranger.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context) as impostor:
        port = impostor.sockets[0].getsockname()[1]
        variables = {"SECEMB_PEER__URL": f"https://127.0.0.1:{port}"}
        settings = load_settings(servers.pair[0].folder / "secemb.toml", variables)
        async with peer_client(settings) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/peer/v1/standing")
    assert not heard


async def test_a_wrong_peer_token_is_refused_before_any_handler(servers: Servers) -> None:
    home = servers.pair[0].folder
    context = peer_context(servers, home / "tls" / "peer.crt", home / "secrets" / "peer.key")
    url = f"https://127.0.0.1:{servers.peer_port}/peer/v1/announce"
    async with httpx.AsyncClient(verify=context) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await client.post(url, json={"not": "an announcement"}, headers=headers)
            assert answer.status_code == 401, answer.text
            assert answer.json()["type"] == "urn:secemb:problem:unauthorized"


def is_ready(server: Server) -> bool:
    return server.get("/readyz") == 200


@pytest.fixture
def on_postgres(postgres: Postgres, tmp_path: Path) -> Iterator[Servers]:
    """A pair whose ledgers are two databases of one PostgreSQL."""
    postgres.run("CREATE DATABASE second;")
    urls = [postgres.empty_database(), str(postgres.server.get_uri(database="second"))]
    made = set_up(tmp_path, databases={role: url.replace("postgres:@", "postgres@") for role, url in enumerate(urls)})
    try:
        made.start()
        yield made
    finally:
        made.end()
        postgres.run("DROP DATABASE second WITH (FORCE);")


async def test_a_round_survives_a_crash_of_the_postgresql_of_both_servers(
    on_postgres: Servers, postgres: Postgres
) -> None:
    devices = await gather(on_postgres)
    for device in devices[:2]:
        await device.send_update()
    await asyncio.to_thread(postgres.stop)
    waiting = [asyncio.create_task(device.send_update()) for device in devices[2:]]
    await asyncio.sleep(0.5)
    assert [server.get("/readyz") for server in on_postgres.pair] == [503, 503]
    assert not any(task.done() for task in waiting)
    await asyncio.to_thread(postgres.start)
    await asyncio.gather(*waiting)
    for server in on_postgres.pair:
        await until_ended(server, devices[0].session.round.number)
    check_published(on_postgres, devices)
    # They have claimed their ledgers again, and their logs say what happened.
    for server in on_postgres.pair:
        await asyncio.to_thread(wait_for, "it is ready again", partial(is_ready, server))
        log = server.log.read_text()
        assert 1 <= log.count('"the ledger is failing"') <= 8  # one for each cause, however often it was tried
        assert "the ledger has recovered" in log
    for device in devices:
        await device.close()
