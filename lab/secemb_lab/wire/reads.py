"""The duration of a read and the cost of a session for each server, directly and through the relay."""

import asyncio
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx
import numpy as np

from secemb_lab.loadtest.fleet import Sending, join, keys_of, send, update_of
from secemb_lab.wire.proxy import Passed
from secemb_lab.wire.rounds import total
from secemb_tools.local import Pair
from secemb_tools.transport import Transport

_TRIES = 400
_PARTS = {"p50": 50, "p95": 95}


@dataclass(slots=True)
class Reads:
    """The time and cost of some sessions of one transport."""

    keys_ms: list[float] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)  # a session, by server
    peer_bytes: list[float] = field(default_factory=list)  # a session, from server 0 to server 1 and back

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "keys_ms": {name: float(np.percentile(self.keys_ms, part)) for name, part in _PARTS.items()},
            "update_ms": {name: float(np.percentile(self.update_ms, part)) for name, part in _PARTS.items()},
            "cpu_ms_a_session": self.cpu_ms,
            "peer_bytes_a_session": self.peer_bytes,
        }


async def measure_reads(pair: Pair, transport: Transport, between: Passed, *, sessions: int, at_once: int = 1) -> Reads:
    """Take sessions through one round, `at_once` at a time, and count the bytes between the servers."""
    reads, gate = Reads(), asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(timeout=120.0) as client:
        version = await _version(client, pair)
        before = [server.usage().cpu_seconds for server in pair.servers]
        between.take()

        async def one(_number: int) -> None:
            async with gate:
                await _session(client, pair, transport, reads)

        await asyncio.gather(*map(one, range(sessions)))
        moved, after = total(between.take()), [server.usage().cpu_seconds for server in pair.servers]
        await _await_next(client, pair, version)
    reads.cpu_ms = [1e3 * (late - early) / sessions for early, late in zip(before, after, strict=True)]
    reads.peer_bytes = [count / sessions for count in moved]
    return reads


async def _session(client: httpx.AsyncClient, pair: Pair, transport: Transport, reads: Reads) -> None:
    joined = await join(client, pair)
    relay = joined.relay if transport == Transport.RELAYED else None

    async def timed(messages: list[Sending], taken_ms: list[float]) -> list[bytes]:
        """Send a step's messages concurrently; record the time until all were answered."""
        start = perf_counter()
        answers = await asyncio.gather(*(send(client, pair, joined, message) for message in messages))
        taken_ms.append(1e3 * (perf_counter() - start))
        return [answer.content for answer in answers]

    answers = await timed(keys_of(joined.session, relay), reads.keys_ms)
    await timed(update_of(joined.session, answers, relay), reads.update_ms)


async def _await_next(client: httpx.AsyncClient, pair: Pair, version: int) -> None:
    """Wait until the round is published: the next measurement begins with a new one."""
    for _ in range(_TRIES):
        if await _version(client, pair) > version:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the round was not published")


async def _version(client: httpx.AsyncClient, pair: Pair) -> int:
    url = f"{pair.servers[0].url}/v1/tasks/{pair.task.task_id.hex()}"
    return int((await client.get(url)).json()["model_version"])
