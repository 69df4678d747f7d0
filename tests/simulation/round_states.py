"""Rounds of a pair, brought to a state and looked at."""

import secrets
from typing import Any

from tests.devices.scripted import Device, a_device
from tests.simulation.invariants import Invariants
from tests.simulation.pair import Pair

from secemb_party.ledger import RoundRecord, RoundState
from secemb_server0.conductor import Open


async def filled(pair: Pair, count: int = 3) -> list[Device]:
    """Open a round and let so many devices do all that is asked of them."""
    assert isinstance(await pair.step(), Open)
    devices = [a_device(pair, number) for number in range(count)]
    for device in devices:
        await device.take_part()
    return devices


async def last(pair: Pair, role: int) -> RoundRecord:
    record = await pair.parties[role].ledger.last_round(pair.task.task_id)
    assert record is not None
    return record


async def assert_published(pair: Pair, devices: list[Device]) -> None:
    """See that the round ended published over exactly these devices."""
    await Invariants(pair, list(devices)).check_end()
    for role in (0, 1):
        record = await last(pair, role)
        assert record.state is RoundState.PUBLISHED
        assert record.sealed_sessions == tuple(sorted(device.name for device in devices))


async def step_to(pair: Pair, state: RoundState) -> None:
    """Let the leader go on until its round is in a state."""
    pair.clock.now += pair.task.join_seconds
    for _ in range(8):
        if (await last(pair, 0)).state is state:
            return
        assert await pair.step() is not None
    raise AssertionError(f"the round never became {state}")


async def self_reports(pair: Pair, numbers: list[list[float]]) -> None:
    """Run a round in which devices hand in these numbers; the model stays as it is."""
    await pair.step()
    for number, values in enumerate(numbers):
        device = a_device(pair, number, name=secrets.token_bytes(16))
        await device.join()
        device.write_sum(values)
        await device.take_part()
    await pair.finish()
    for role in (0, 1):
        assert (await last(pair, role)).state is RoundState.PUBLISHED
        published = await pair.parties[role].ledger.published_version(pair.task.task_id)
        assert published is not None
        assert published.version == 0
    assert pair.line.broken == []


async def results(pair: Pair) -> list[dict[str, Any]]:
    """Return the figures that server 0 has noted."""
    return [dict(one.data) for one in await pair.parties[0].ledger.events() if one.kind == "result"]
