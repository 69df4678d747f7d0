"""Two replicas of each server, as `secemb serve --replicas` runs them: killed, paused, and answering as one server.

The ledgers are in PostgreSQL, and server 1 keeps its shares, models and uploads in an object store. Every round must
end published with the sum of all its devices, whichever replica they reached.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.devices.over_http import Device, check_published, gather
from tests.e2e.servers import Server, Servers, set_up, wait_for
from tests.e2e.test_processes import until_ended
from tests.integration.databases import Postgres
from tests.integration.object_server import KEY, ObjectServer

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, object_server: ObjectServer
) -> Iterator[Servers]:
    urls = postgres.ledger_database(), postgres.empty_database()
    databases = {role: url.replace(":@", "@") for role, url in enumerate(urls)}
    made = set_up(tmp_path_factory.mktemp("replicas"), databases=databases)
    for server in made.pair:
        server.arguments = ("--replicas", "2")
        server.variables |= {"SECEMB_LEDGER__SHARED": "true", "SECEMB_LOGS__FORMAT": "text"}
    address = object_server.address(object_server.bucket())
    made.pair[1].variables |= {
        "SECEMB_STORAGE__URL": address.url,
        "SECEMB_STORAGE__ENDPOINT": address.endpoint or "",
        "SECEMB_STORAGE__BODIES": "store",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
    }
    try:
        made.start()
        for server in made.pair:
            wait_for(f"both replicas of server {server.role} are ready", partial(all_ready, server))
        yield made
    finally:
        for server in made.pair:
            if server.process is not None and server.process.poll() is None:
                server.stop()


def all_ready(server: Server) -> bool:
    return all(server.get("/readyz", at) == 200 for at in metrics_of(server))


def metrics_of(server: Server) -> list[str]:
    """Return where the two replicas show their metrics."""
    return [f"http://{server.host}:{server.metrics_port + number}" for number in (0, 1)]


def replicas(server: Server) -> list[int]:
    """Return the process ids of a server's replicas, in order of their start."""
    assert server.process is not None
    pid = server.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_another(server: Server, before: list[int]) -> bool:
    return len(set(replicas(server)) - set(before)) == 1


async def finish(servers: Servers, devices: list[Device]) -> None:
    number = devices[0].session.round.number
    for server in servers.pair:
        await until_ended(server, number)
        assert await asyncio.to_thread(server.state, number) == "published"
    check_published(servers, devices)
    for device in devices:
        await device.close()


async def test_devices_reach_any_replica_and_rounds_are_published(servers: Servers) -> None:
    for _ in range(2):
        devices = await gather(servers)
        for device in devices:
            await device.send_update()
        await finish(servers, devices)


@pytest.mark.parametrize("role", [0, 1])
async def test_killed_replicas_cost_no_session_and_no_round(servers: Servers, role: int) -> None:
    """One replica after the other, the conductor among them, while devices send; the other one goes on."""
    server = servers.pair[role]
    devices = await gather(servers)
    for device, number in zip(devices, (0, 1, 0, 1), strict=True):
        if number == 0:
            before = replicas(server)
            os.kill(before[0], signal.SIGKILL)
            await asyncio.to_thread(wait_for, "the replica is back", partial(has_another, server, before))
        await device.send_update()
    await finish(servers, devices)


async def test_a_conductor_that_is_paused_is_replaced_and_does_no_harm_when_it_wakes(servers: Servers) -> None:
    server = servers.pair[0]
    await asyncio.to_thread(wait_for, "both replicas are ready", lambda: all_ready(server))
    conductor = await asyncio.to_thread(conductor_of, server)
    devices = await gather(servers)
    os.kill(conductor, signal.SIGSTOP)
    try:
        for device in devices:
            await device.send_update([1])
        # Its connections are its own: devices that reach it wait, and retry.
        await asyncio.to_thread(wait_for, "another conducts", lambda: conductor_of(server) not in {0, conductor})
    finally:
        os.kill(conductor, signal.SIGCONT)
    for device in devices:
        await device.send_update([0])
    await finish(servers, devices)


def conductor_of(server: Server) -> int:
    """Return the process that holds the conductor's lock, by the name that it gave its connection."""
    held = server.ask(
        "SELECT a.application_name AS name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
        " WHERE l.locktype = 'advisory' AND l.objid = 1590573829 AND l.granted"
    )
    return int(str(held[0]["name"]).rpartition(" ")[2]) if held else 0
