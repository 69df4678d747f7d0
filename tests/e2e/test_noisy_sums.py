"""Noise over two real processes: as much as was promised is in the model, both count alike, and both stop."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from tests.devices.over_http import Device, gather
from tests.e2e.servers import Servers, secemb, set_up
from tests.e2e.test_processes import until_ended

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio]

ROUNDS = 2
PROMISE = """
unit = "user"
delta = 1e-5
[train]
clip = 1.0
multiplier = 4.5
epsilon = 1.4
"""


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "privacy.toml").write_text(PROMISE)
    made = set_up(folder, changes={"items": 3000, "privacy": folder / "privacy.toml"})
    try:
        made.start()
        yield made
    finally:
        made.end()


async def run_round(servers: Servers) -> list[Device]:
    devices = await gather(servers)
    for device in devices:
        await device.send_update()
    for server in servers.pair:
        await until_ended(server, devices[0].session.round.number)
    for device in devices:
        await device.close()
    return devices


def noise_in(servers: Servers, devices: list[Device], version: int) -> np.ndarray:
    """Return what is in the table's sum besides the devices' updates; SGD with rate 1 has subtracted the mean."""
    old, new = (servers.model(1, version + step).rows.astype(np.float64) for step in (0, 1))
    total = -len(devices) * (new - old)
    for device in devices:
        total[device.item] -= device.update_rows[0]
    return total.reshape(-1)


def kill_both(servers: Servers) -> None:
    for server in servers.pair:
        server.kill()
    servers.start()


def spent(servers: Servers) -> list[dict[str, Any]]:
    """Return what both servers say that they have spent on training."""
    found = []
    for server, token in zip(servers.pair, servers.operator_tokens, strict=True):
        file = server.folder / "operator.token"
        file.write_text(token)
        (line,) = json.loads(secemb("privacy", "show", "--server", server.operator_url, "--token-file", file, "--json"))
        found.append(line)
    return found


async def test_the_promised_noise_is_in_the_model_and_the_task_ends_at_its_budget(servers: Servers) -> None:
    standings = [await asyncio.to_thread(spent, servers)]
    for version in range(ROUNDS):
        noise = noise_in(servers, await run_round(servers), version)
        variance = 2 * 4.5**2  # both servers' noise; each alone can take its own half off
        assert abs(noise.mean()) < 6 * (variance / noise.size) ** 0.5
        assert abs(noise.var() / variance - 1) < 6 * (2 / noise.size) ** 0.5
        await asyncio.to_thread(kill_both, servers)  # and nothing is forgotten
        standings.append(await asyncio.to_thread(spent, servers))
    assert all(first == second for first, second in standings)
    begin, middle, end = (first for first, _ in standings)
    assert [one["shares"] for one in (begin, middle, end)] == [0, 1, 2]
    assert 0 == begin["epsilon"] < middle["epsilon"] < end["epsilon"] <= end["budget"] == 1.4
    assert [one["remaining"] for one in (begin, middle, end)] == [2, 1, 0]
    path = f"{servers.pair[0].url}/v1/tasks/{servers.task.task_id.hex()}/join"
    headers = {"authorization": f"Bearer {servers.tokens[0]}"}
    await asyncio.sleep(1.0)  # a round that was wrongly opened would be open by now
    async with httpx.AsyncClient() as client:
        answer = await client.post(path, json={"session": "ab" * 16}, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:secemb:problem:task-ended"), answer.text
    for server in servers.pair:
        states = [state for (state,) in server.ask("SELECT state FROM rounds WHERE state != 'aborted'")]
        assert states == ["published"] * ROUNDS
