"""Devices by the hundred: each joins, reads its rows and adds zeros, over HTTP as a real one does."""

import asyncio
import secrets
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter, process_time

import httpx
import numpy as np

from secemb_sdk.flow import DeviceSession
from secemb_shared.messages import RoundSpec
from secemb_tools.local import Pair

_TRIES = 600


@dataclass(slots=True)
class Fleet:
    """What all devices saw together."""

    keys_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    finished: int = 0
    failed: int = 0
    seconds: float = 0.0
    generator_cpu_seconds: float = 0.0


async def run_fleet(pair: Pair, *, devices: int, rounds: int) -> Fleet:
    """Take the whole fleet through some rounds, all devices of a round at once."""
    fleet, start, cpu = Fleet(), perf_counter(), process_time()
    trust = ssl.create_default_context()  # made once: a client of its own for each device would make its own
    async with AsyncExitStack() as stack:
        # One client a device, as in life; one for all would spend its time looking for a free connection.
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(timeout=120, verify=trust)) for _ in range(devices)
        ]
        for _ in range(rounds):
            await asyncio.gather(*(_one_session(client, pair, fleet) for client in clients))
        fleet.seconds, fleet.generator_cpu_seconds = perf_counter() - start, process_time() - cpu
        await _await_published(clients[0], pair, rounds)
    return fleet


async def _one_session(client: httpx.AsyncClient, pair: Pair, fleet: Fleet) -> None:
    try:
        session, ticket = await _join(client, pair)
        answers = await _send(client, pair, session, ticket, "keys", session.keys, fleet.keys_seconds)
        items, rows = session.read((answers[0], answers[1]))
        messages = session.write(items, np.zeros_like(rows))
        await _send(client, pair, session, ticket, "update", messages, fleet.update_seconds)
        fleet.finished += 1
    except (httpx.HTTPError, TimeoutError):
        fleet.failed += 1


async def _join(client: httpx.AsyncClient, pair: Pair) -> tuple[DeviceSession, str]:
    """Ask until there is a round, as often as Retry-After says."""
    session_id, task = secrets.token_bytes(16), pair.task
    for _ in range(_TRIES):
        url = f"{pair.servers[0].url}/v1/tasks/{task.task_id.hex()}/join"
        answer = (await client.post(url, json={"session": session_id.hex()})).raise_for_status()
        if answer.status_code == 200:
            spec = RoundSpec.decode(answer.json()["round"].encode(), task)
            return _open(spec, session_id), answer.json()["ticket"]
        await asyncio.sleep(float(answer.headers["retry-after"]))
    raise TimeoutError


def _open(spec: RoundSpec, session_id: bytes) -> DeviceSession:
    """Return a session of a device with a full taste, under the id that it has joined with."""
    given = [session_id]
    items = np.random.default_rng().choice(spec.task.items, spec.task.capacity, replace=False).astype(np.int64)
    return DeviceSession(spec, items, random_bytes=lambda count: given.pop() if given else secrets.token_bytes(count))


async def _send(
    client: httpx.AsyncClient,
    pair: Pair,
    session: DeviceSession,
    ticket: str,
    what: str,
    bodies: tuple[bytes, bytes],
    seconds: list[float],
) -> list[bytes]:
    path = f"/v1/rounds/{session.round.digest.hex()}/sessions/{session.session_id.hex()}/{what}"
    headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket}

    async def put(url: str, body: bytes) -> bytes:
        start = perf_counter()
        for _ in range(_TRIES):
            answer = await client.put(url + path, content=body, headers=headers)
            if answer.status_code != 429:
                break
            await asyncio.sleep(float(answer.headers["retry-after"]))
        answer.raise_for_status()
        seconds.append(perf_counter() - start)
        return answer.content

    return list(await asyncio.gather(*(put(one.url, body) for one, body in zip(pair.servers, bodies, strict=True))))


async def _await_published(client: httpx.AsyncClient, pair: Pair, rounds: int) -> None:
    for _ in range(_TRIES):
        answers = [await client.get(f"{one.url}/v1/tasks/{pair.task.task_id.hex()}") for one in pair.servers]
        if all(answer.json()["model_version"] >= rounds for answer in answers):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError("the rounds were not published")
