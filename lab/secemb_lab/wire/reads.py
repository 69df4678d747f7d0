"""How long a read takes and what a session costs each server, directly and through the relay."""

import asyncio
import secrets
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx
import numpy as np

from secemb_lab.loadtest.fleet import Sending, keys_of, update_of
from secemb_lab.wire.proxy import Passed
from secemb_lab.wire.rounds import Transport, total
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_tools.local import Pair

_TRIES = 400
_PARTS = {"p50": 50, "p95": 95}


@dataclass(slots=True)
class Reads:
    """What some sessions of one transport took."""

    keys_ms: list[float] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)  # a session, by server
    peer_bytes: list[float] = field(default_factory=list)  # a session, from server 0 to server 1 and back

    def summary(self) -> dict[str, Any]:
        """Return what is told of them."""
        return {
            "keys_ms": {name: float(np.percentile(self.keys_ms, part)) for name, part in _PARTS.items()},
            "update_ms": {name: float(np.percentile(self.update_ms, part)) for name, part in _PARTS.items()},
            "cpu_ms_a_session": self.cpu_ms,
            "peer_bytes_a_session": self.peer_bytes,
        }


async def measure_reads(pair: Pair, transport: Transport, between: Passed, *, sessions: int, at_once: int = 1) -> Reads:
    """Take so many sessions through one round, so many at a time, and count what passes between the servers."""
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
    session, joined = await _join(client, pair)
    relay = RelayKey.read(pair.task, urlsafe_b64decode(joined["relay"])) if transport == "relayed" else None
    calls = _Calls(client, pair, session, joined["ticket"])
    answers = await calls.send(keys_of(session, relay), reads.keys_ms)
    await calls.send(update_of(session, answers, relay), reads.update_ms)


@dataclass(frozen=True, slots=True, repr=False)
class _Calls:
    """The calls of one session."""

    client: httpx.AsyncClient
    pair: Pair
    session: DeviceSession
    ticket: str

    async def send(self, messages: list[Sending], taken_ms: list[float]) -> list[bytes]:
        """Send a step's messages at the same time; note how long it took until all were answered."""
        start = perf_counter()
        answers = await asyncio.gather(*map(self._put, messages))
        taken_ms.append(1e3 * (perf_counter() - start))
        return [answer.raise_for_status().content for answer in answers]

    async def _put(self, message: Sending) -> httpx.Response:
        path = f"/v1/rounds/{self.session.round.digest.hex()}/sessions/{self.session.session_id.hex()}/{message.name}"
        headers = {"content-type": "application/octet-stream", "secemb-ticket": self.ticket}
        if message.mac:
            headers["secemb-proof"] = message.mac.hex()
        return await self.client.put(
            self.pair.servers[message.server].url + path, content=message.body, headers=headers
        )


async def _join(client: httpx.AsyncClient, pair: Pair) -> tuple[DeviceSession, dict[str, str]]:
    session_id, task = secrets.token_bytes(16), pair.task
    url = f"{pair.servers[0].url}/v1/tasks/{task.task_id.hex()}/join"
    for _ in range(_TRIES):
        answer = (await client.post(url, json={"session": session_id.hex()})).raise_for_status()
        if answer.status_code == 200:
            spec = RoundSpec.decode(answer.json()["round"].encode(), task)
            return await asyncio.to_thread(_open, spec, session_id), answer.json()
        await asyncio.sleep(0.05)
    raise TimeoutError("no round took the device in")


def _open(spec: RoundSpec, session_id: bytes) -> DeviceSession:
    """Return a session of a device with a full taste, under the id that it has joined with."""
    given, task = [session_id], spec.task
    items = np.random.default_rng().choice(task.items, task.capacity, replace=False).astype(np.int64)
    return DeviceSession(spec, items, random_bytes=lambda count: given.pop() if given else secrets.token_bytes(count))


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
