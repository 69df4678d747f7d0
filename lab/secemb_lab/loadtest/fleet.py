"""Lean devices for measurements: their messages and requests, many at once, round after round."""

import asyncio
import secrets
import ssl
from base64 import urlsafe_b64decode
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter, process_time

import httpx
import numpy as np

from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed
from secemb_tools.local import Pair

_TRIES = 3000
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, repr=False)
class Sending:
    """One message of a device, as sent over HTTP."""

    server: int
    name: str  # the last segment of its path
    body: bytes
    mac: bytes = b""


def keys_of(session: DeviceSession, relay: RelayKey | None) -> list[Sending]:
    """Return the messages with the session's keys: one to each server, or one with a box for server 1 inside."""
    if relay is None:
        return [Sending(server, "keys", body) for server, body in enumerate(session.keys)]
    content = box_content(session.round, Kind.KEYS, session.keys[1])
    return [_relayed(session, "relayed-keys", Kind.RELAYED_KEYS, session.keys[0], content, relay)]


def update_of(session: DeviceSession, answers: list[bytes], relay: RelayKey | None) -> list[Sending]:
    """Read the rows, and return an update of zeros."""
    if relay is None:
        session.read((answers[0], answers[1]))
        messages, macs = session.write_nothing(), session.marks.macs
        return [Sending(server, "update", messages[server], macs[server]) for server in (0, 1)]
    session.read_relayed(answers[0])
    own, other = session.write_nothing()
    macs = session.marks.macs
    content = box_content(session.round, Kind.UPDATE, other, mac=macs[1])
    return [_relayed(session, "relayed-update", Kind.RELAYED_UPLOAD, own, content, relay, macs[0])]


def _relayed(
    session: DeviceSession, name: str, kind: Kind, own: bytes, content: bytes, relay: RelayKey, mac: bytes = b""
) -> Sending:
    return Sending(0, name, encode_relayed(session.round, session.session_id, kind, own, content, relay), mac)


# A full server asks devices to wait up to a minute, but here the next round opens within moments.
_LONGEST_PAUSE = 0.3


@dataclass(frozen=True, slots=True, repr=False)
class JoinedSession:
    """A session that has joined a round; `relay` is server 1's key if the task has one."""

    session: DeviceSession
    ticket: str
    relay: RelayKey | None
    attempts: int


async def join(client: httpx.AsyncClient, pair: Pair) -> JoinedSession:
    """Ask until a round accepts the device."""
    session_id, task = secrets.token_bytes(16), pair.task
    url = f"{pair.servers[0].url}/v1/tasks/{task.task_id.hex()}/join"
    for attempt in range(1, _TRIES + 1):
        answer = (await client.post(url, json={"session": session_id.hex()})).raise_for_status()
        if answer.status_code == 200:
            found = answer.json()
            relay = RelayKey.read(task, urlsafe_b64decode(found["relay"])) if task.relays else None
            session = _open(RoundSpec.decode(found["round"].encode(), task), session_id)
            return JoinedSession(session, found["ticket"], relay, attempt)
        await _pause(answer)
    raise TimeoutError("no round accepted the device")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A server's answer, and the bytes of all bodies sent for it; a full server makes devices retry."""

    content: bytes
    sent: int
    received: int


def path_of(round_: RoundSpec, session_id: bytes, name: str) -> str:
    """Return the path of one message of a session."""
    return f"/v1/rounds/{round_.digest.hex()}/sessions/{session_id.hex()}/{name}"


def headers_of(ticket: str, mac: bytes = b"") -> dict[str, str]:
    """Return the headers of one message; an upload has a MAC."""
    headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket}
    return headers | ({"secemb-proof": mac.hex()} if mac else {})


async def send(client: httpx.AsyncClient, pair: Pair, joined: JoinedSession, message: Sending) -> Delivery:
    """Send a message until it is accepted."""
    session = joined.session
    path = path_of(session.round, session.session_id, message.name)
    headers = headers_of(joined.ticket, message.mac)
    sent = received = 0
    for _ in range(_TRIES):
        answer = await client.put(pair.servers[message.server].url + path, content=message.body, headers=headers)
        sent, received = sent + len(message.body), received + len(answer.content)
        if answer.status_code != 429:
            return Delivery(answer.raise_for_status().content, sent, received)
        await _pause(answer)
    raise TimeoutError("the server stayed full")


def _open(spec: RoundSpec, session_id: bytes) -> DeviceSession:
    """Return a session of a device with a full set of items, under the id that it has joined with."""
    given = [session_id]
    items = np.random.default_rng().choice(spec.task.items, spec.task.capacity, replace=False).astype(np.int64)
    return DeviceSession(spec, items, random_bytes=lambda count: given.pop() if given else secrets.token_bytes(count))


async def _pause(answer: httpx.Response) -> None:
    await asyncio.sleep(min(float(answer.headers["retry-after"]), _LONGEST_PAUSE))


@dataclass(slots=True)
class Fleet:
    """The measurements of all devices together."""

    keys_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    sent: int = 0  # bytes of bodies, retries included
    received: int = 0
    joins: int = 0  # requests to join, retries included
    finished: int = 0
    failed: int = 0
    seconds: float = 0.0
    generator_cpu_seconds: float = 0.0


async def run_fleet(pair: Pair, *, devices: int, rounds: int, patience: float = 120) -> Fleet:
    """Take the whole fleet through some rounds, all devices of a round at once.

    They return when a round is published. A real device waits as long as the server asks; with hundreds of devices
    polling for the next round, the measurement would be of their polling.
    """
    fleet, start, cpu = Fleet(), perf_counter(), process_time()
    trust = ssl.create_default_context()  # created once, because each client would create its own
    async with AsyncExitStack() as stack:
        # One client for each device, as in reality; a shared one would spend its time searching for a free connection.
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(timeout=patience, verify=trust)) for _ in range(devices)
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
    """Send a step's messages concurrently and return the answers."""

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
