"""Many devices at once, round after round."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter, process_time

import httpx

from secemb_lab.loadtest.client import JoinedSession, Sending, join, keys_of, send, update_of
from secemb_tools.local import Pair

_TRIES = 3000
_LOOK_SECONDS = 0.25


@dataclass(slots=True)
class Fleet:
    """What all devices measured together."""

    keys_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    sent: int = 0  # bytes of bodies, retries included
    received: int = 0
    joins: int = 0  # requests to join, retries included
    finished: int = 0
    failed: int = 0
    seconds: float = 0.0
    generator_cpu_seconds: float = 0.0


async def run_fleet(pair: Pair, *, devices: int, rounds: int) -> Fleet:
    """Take the whole fleet through some rounds, all devices of a round at once.

    They come back when a round is published. A real device waits as long as it is told to; hundreds of devices that
    polled for the next round would measure their own polling.
    """
    fleet, start, cpu = Fleet(), perf_counter(), process_time()
    trust = ssl.create_default_context()  # made once: each client would make its own
    async with AsyncExitStack() as stack:
        # One client for each device, as in reality; a shared one would spend its time looking for a free connection.
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(timeout=120, verify=trust)) for _ in range(devices)
        ]
        for number in range(rounds):
            await asyncio.gather(*(_one_session(client, pair, fleet) for client in clients))
            await _await_published(clients[0], pair, number + 1)
        fleet.seconds, fleet.generator_cpu_seconds = perf_counter() - start, process_time() - cpu
    return fleet


async def _one_session(client: httpx.AsyncClient, pair: Pair, fleet: Fleet) -> None:
    try:
        joined = await join(client, pair)
        fleet.joins += joined.attempts
        answers = await _send_all(
            client, pair, joined, keys_of(joined.session, joined.relay), fleet, fleet.keys_seconds
        )
        update = update_of(joined.session, answers, joined.relay)
        await _send_all(client, pair, joined, update, fleet, fleet.update_seconds)
        fleet.finished += 1
    except (httpx.HTTPError, TimeoutError):
        fleet.failed += 1


async def _send_all(
    client: httpx.AsyncClient,
    pair: Pair,
    joined: JoinedSession,
    messages: list[Sending],
    fleet: Fleet,
    seconds: list[float],
) -> list[bytes]:
    """Send a step's messages at the same time and return the answers."""

    async def one(message: Sending) -> bytes:
        start = perf_counter()
        answer = await send(client, pair, joined, message)
        seconds.append(perf_counter() - start)
        fleet.sent += answer.sent
        fleet.received += answer.received
        return answer.content

    return list(await asyncio.gather(*map(one, messages)))


async def _await_published(client: httpx.AsyncClient, pair: Pair, rounds: int) -> None:
    for _ in range(_TRIES):
        answers = [await client.get(f"{one.url}/v1/tasks/{pair.task.task_id.hex()}") for one in pair.servers]
        if all(answer.json()["model_version"] >= rounds for answer in answers):
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise TimeoutError("the rounds were not published")
