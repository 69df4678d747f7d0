"""Real servers keep many versions of the model, discard what a hostile device spoils, and go back however far."""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.devices.over_http import Device, SpoilingDevice
from tests.e2e.servers import Server, Servers, set_up, wait_for

from secemb_party.storage import ModelFiles, OptimiserState, Shape

ROUNDS = 6


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    # Without a norm bound the hostile device's session counts, and only the sum shows it.
    changes = {"optimiser": "adam", "guard": 8, "schedule": "cosine", "rounds": 50, "norm-bound": 0}
    made = set_up(Path(tmp_path_factory.mktemp("versions")), changes=changes)
    try:
        made.start()
        yield made
    finally:
        made.end()


async def run_round(servers: Servers, *, spoiled: bool = False) -> str:
    """Let four devices take part in a round, one of them a hostile one if it is to be spoiled; return how it ended."""
    devices = [(SpoilingDevice if spoiled and not number else Device)(servers, number) for number in range(4)]
    numbers = [await device.join() for device in devices]
    for device in devices:
        await device.send_keys()
    for device in devices:
        await device.send_update()
        await device.close()
    for server in servers.pair:
        await asyncio.to_thread(wait_for, "the round ends", partial(has_ended, server, numbers[0]))
    states = {server.state(numbers[0]) for server in servers.pair}
    assert len(states) == 1
    return states.pop()


def has_ended(server: Server, number: int) -> bool:
    return server.state(number) in {"published", "aborted", "discarded"}


def state_of(servers: Servers, version: int) -> OptimiserState | None:
    folder = servers.pair[0].folder / "data" / "models"
    return ModelFiles(folder, servers.task.task_id, Shape.of(servers.task)).load_state(version)


def operate(servers: Servers, role: int, method: str, path: str, **query: object) -> Any:
    headers = {"authorization": f"Bearer {servers.operator_tokens[role]}"}
    url = f"{servers.pair[role].operator_url}/v1/operator{path}"
    answer = httpx.request(method, url, params=query, headers=headers, timeout=20.0)  # type: ignore[arg-type]
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def versions(servers: Servers, role: int) -> dict[int, str]:
    found = operate(servers, role, "GET", "/models")
    return {one["version"]: one["digest"] for one in found if one["published_at"] is not None and one["kept"]}


def has_version(servers: Servers, role: int, version: int) -> bool:
    return version in versions(servers, role)


@pytest.mark.timeout(300)
def test_a_pair_goes_back_to_a_version_of_long_ago_after_a_hostile_device_and_a_crash(servers: Servers) -> None:
    for _ in range(ROUNDS):
        assert asyncio.run(run_round(servers)) == "published"
    before = versions(servers, 0)
    assert asyncio.run(run_round(servers, spoiled=True)) == "discarded"
    assert versions(servers, 0) == versions(servers, 1) == before
    assert sorted(before) == list(range(ROUNDS + 1))
    assert operate(servers, 0, "GET", "/overview")["trained_rounds"] == ROUNDS
    text = httpx.get(f"{servers.pair[0].metrics_url}/metrics").text
    assert re.search(r'secemb_rounds_total\{outcome="discarded",task="[0-9a-f]{8}"\} 1.0', text)
    asked = operate(servers, 0, "POST", "/models/1/rollback", seen=ROUNDS, reason="a test")
    assert (asked["source"], asked["seen"]) == (1, ROUNDS)
    servers.pair[0].kill()  # wherever the rollback is
    servers.pair[0].start()
    made = ROUNDS + 1
    for role in (0, 1):
        wait_for("the rollback is published", partial(has_version, servers, role, made))
        assert np.array_equal(servers.model(role, made).rows, servers.model(role, 1).rows)
    state = state_of(servers, made)
    assert state is not None
    assert state.steps == 1  # of the version that it went back to
    assert asyncio.run(run_round(servers)) == "published"
    # The same devices with the same state make the same step again.
    assert np.array_equal(servers.model(1, made + 1).rows, servers.model(1, 2).rows)
