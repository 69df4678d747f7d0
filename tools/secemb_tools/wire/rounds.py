"""What one device moves in a round, counted on the wire: real services, the SDK's own client, a proxy in between."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Literal

import httpx
import numpy as np

from secemb_sdk import Contributed, Device, Policy
from secemb_tools.local import Pair
from secemb_tools.wire.proxy import Passed, proxy

Transport = Literal["direct", "relayed"]
Bytes = tuple[int, int]  # up, down, both servers together

_TRIES = 400


async def measure_rounds(pair: Pair, folder: Path, transport: Transport, *, rounds: int = 2) -> list[Bytes]:
    """Return the bytes of a device in each of its first rounds; a second device makes up the cohort."""
    async with AsyncExitStack() as stack:
        counted = [await stack.enter_async_context(proxy(server.port)) for server in pair.servers]
        servers = f"http://127.0.0.1:{counted[0][0]}", f"http://127.0.0.1:{counted[1][0]}"
        first = await stack.enter_async_context(_device(pair, folder / f"{transport}-1", servers, transport))
        second = await stack.enter_async_context(_device(pair, folder / f"{transport}-2", pair.urls, transport))
        random = np.random.default_rng(7)
        for device in (first, second):
            items = random.choice(pair.task.items, pair.task.capacity, replace=False)
            device.log_many({int(item): float(random.integers(1, 6)) for item in items})
        found = []
        for number in range(rounds):
            await _await_round(pair)
            mine, _ = await asyncio.gather(
                _contribute(first, [one for _, one in counted], fresh=not number), _contribute(second, [], fresh=False)
            )
            found.append(mine)
        return found


async def _await_round(pair: Pair) -> None:
    """Wait, outside of what is counted, until devices can join."""
    url = f"{pair.servers[0].url}/v1/tasks/{pair.task.task_id.hex()}"
    async with httpx.AsyncClient() as client:
        for _ in range(_TRIES):
            if (await client.get(url)).json().get("round") is not None:
                return
            await asyncio.sleep(0.1)


def _device(
    pair: Pair, home: Path, servers: tuple[str, str], transport: Transport
) -> AbstractAsyncContextManager[Device]:
    policy = Policy(pace_seconds=0.0, seconds=60.0)
    return Device.open(
        home=home, servers=servers, task=pair.task.task_id.hex(), policy=policy, transport=transport, hold_out=0.0
    )


async def _contribute(device: Device, counted: list[Passed], *, fresh: bool) -> Bytes:
    """Take part in a round; what was asked in vain before it opened is counted in the first one only."""
    for _ in range(_TRIES):
        for one in () if fresh else counted:
            one.take()
        outcome = await device.contribute()
        if isinstance(outcome, Contributed):
            await asyncio.sleep(0.05)  # the last bytes of an answer may still be counted
            taken = [one.take() for one in counted]
            return sum(up for up, _ in taken), sum(down for _, down in taken)
        await asyncio.sleep(min(outcome.seconds, 0.5))
    raise TimeoutError("no round took the device in")
