"""How long a read takes and what a session costs each server, directly and through the relay."""

import asyncio
import secrets
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from time import perf_counter

import httpx
import numpy as np

from secemb_sdk.flow import DeviceSession
from secemb_shared import relaying
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed
from secemb_tools.local import Pair
from secemb_tools.wire.rounds import Transport

_TRIES = 400
_BINARY = {"content-type": "application/octet-stream"}


@dataclass(slots=True)
class Reads:
    """What some sessions of one transport took."""

    keys_ms: list[float] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)  # a session, by server


async def measure_reads(pair: Pair, transport: Transport, *, sessions: int, at_once: int = 1) -> Reads:
    """Take so many sessions through one round, so many at a time."""
    reads, gate = Reads(), asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(timeout=120.0) as client:
        version = await _version(client, pair)
        before = [server.usage().cpu_seconds for server in pair.servers]

        async def one(number: int) -> None:
            async with gate:
                await _session(client, pair, transport, reads)

        await asyncio.gather(*map(one, range(sessions)))
        after = [server.usage().cpu_seconds for server in pair.servers]
        await _await_next(client, pair, version)
    reads.cpu_ms = [1e3 * (late - early) / sessions for early, late in zip(before, after, strict=True)]
    return reads


async def _session(client: httpx.AsyncClient, pair: Pair, transport: Transport, reads: Reads) -> None:
    session, joined = await _join(client, pair)
    if transport == "relayed":
        key = RelayKey.read(pair.task, urlsafe_b64decode(joined["relay"]))
        content = box_content(session.round, Kind.KEYS, session.keys[1])
        keys = [_relayed(session, Kind.RELAYED_KEYS, session.keys[0], content, key)]
    else:
        keys = list(session.keys)
    (answers, taken) = await _put(client, pair, session, joined["ticket"], _name(transport, "keys"), keys)
    reads.keys_ms.append(taken)
    if transport == "relayed":
        session.read_relayed(answers[0])
        first, second = session.write_nothing()
        proof = relaying.proof_of(session.round.label(session.session_id), session.hold, second)
        content = box_content(session.round, Kind.UPDATE, second, proof=proof)
        update = [_relayed(session, Kind.RELAYED_UPLOAD, first, content, key)]
    else:
        session.read((answers[0], answers[1]))
        update = list(session.write_nothing())
        proof = relaying.proof_of(session.round.label(session.session_id), session.hold, update[1])
    _, taken = await _put(client, pair, session, joined["ticket"], _name(transport, "update"), update, proof)
    reads.update_ms.append(taken)


def _name(transport: Transport, what: str) -> str:
    return what if transport == "direct" else f"relayed-{what}"


def _relayed(session: DeviceSession, kind: Kind, own: bytes, content: bytes, key: RelayKey) -> bytes:
    return encode_relayed(session.round, session.session_id, kind, own, content, key)


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


async def _put(
    client: httpx.AsyncClient,
    pair: Pair,
    session: DeviceSession,
    ticket: str,
    what: str,
    bodies: list[bytes],
    proof: bytes = b"",
) -> tuple[list[bytes], float]:
    path = f"/v1/rounds/{session.round.digest.hex()}/sessions/{session.session_id.hex()}/{what}"
    headers, start = _BINARY | {"secemb-ticket": ticket, "secemb-proof": proof.hex()}, perf_counter()
    answers = await asyncio.gather(
        *(
            client.put(server.url + path, content=body, headers=headers)
            for server, body in zip(pair.servers, bodies, strict=False)
        )
    )
    taken = 1e3 * (perf_counter() - start)
    return [answer.raise_for_status().content for answer in answers], taken


async def _await_next(client: httpx.AsyncClient, pair: Pair, version: int) -> None:
    """Wait until the round is published: the next measurement begins with a new one."""
    for _ in range(_TRIES):
        if await _version(client, pair) > version:
            return
        await asyncio.sleep(0.1)


async def _version(client: httpx.AsyncClient, pair: Pair) -> int:
    url = f"{pair.servers[0].url}/v1/tasks/{pair.task.task_id.hex()}"
    return int((await client.get(url)).json()["model_version"])
