"""What a device of a load test sends: a message to each server, or one to server 0 with the other sealed in it."""

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


@dataclass(frozen=True, slots=True, repr=False)
class Sending:
    """One message of a device, as HTTP carries it."""

    server: int
    name: str  # the last part of its address
    body: bytes
    mac: bytes = b""


def keys_of(session: DeviceSession, relay: RelayKey | None) -> list[Sending]:
    """Return the session's keys; sealed to server 1's key, if there is one."""
    if relay is None:
        return [Sending(server, "keys", body) for server, body in enumerate(session.keys)]
    content = box_content(session.round, Kind.KEYS, session.keys[1])
    return [_relayed(session, "relayed-keys", Kind.RELAYED_KEYS, session.keys[0], content, relay)]


def update_of(session: DeviceSession, answers: list[bytes], relay: RelayKey | None) -> list[Sending]:
    """Read the rows, and return an update that changes nothing."""
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


_TRIES = 3000
# A server that has no place sends devices away for up to a minute; here the next round is a moment away.
_LONGEST_PAUSE = 0.3
_LOOK_SECONDS = 0.25


@dataclass(slots=True)
class Fleet:
    """What all devices saw together."""

    keys_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    sent: int = 0  # bytes of bodies, repeats included
    received: int = 0
    joins: int = 0  # wishes to join, those that were told to come back included
    finished: int = 0
    failed: int = 0
    seconds: float = 0.0
    generator_cpu_seconds: float = 0.0


async def run_fleet(pair: Pair, *, devices: int, rounds: int) -> Fleet:
    """Take the whole fleet through some rounds, all devices of a round at once.

    They come back when a round is published. A device in life waits as long as it is told to; hundreds that asked
    every moment whether the next round is open would measure their own impatience.
    """
    fleet, start, cpu = Fleet(), perf_counter(), process_time()
    trust = ssl.create_default_context()  # made once: a client of its own for each device would make its own
    async with AsyncExitStack() as stack:
        # One client a device, as in life; one for all would spend its time looking for a free connection.
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
        session, ticket, relay = await _join(client, pair, fleet)
        calls = _Calls(client, pair, session, ticket, fleet)
        answers = await calls.send(keys_of(session, relay), fleet.keys_seconds)
        await calls.send(update_of(session, answers, relay), fleet.update_seconds)
        fleet.finished += 1
    except (httpx.HTTPError, TimeoutError):
        fleet.failed += 1


async def _join(client: httpx.AsyncClient, pair: Pair, fleet: Fleet) -> tuple[DeviceSession, str, RelayKey | None]:
    """Ask until there is a round; return its session, the ticket and, where the task is relayed, server 1's key."""
    session_id, task = secrets.token_bytes(16), pair.task
    for _ in range(_TRIES):
        url = f"{pair.servers[0].url}/v1/tasks/{task.task_id.hex()}/join"
        answer = (await client.post(url, json={"session": session_id.hex()})).raise_for_status()
        fleet.joins += 1
        if answer.status_code == 200:
            found = answer.json()
            relay = RelayKey.read(task, urlsafe_b64decode(found["relay"])) if task.relays else None
            return _open(RoundSpec.decode(found["round"].encode(), task), session_id), found["ticket"], relay
        await _pause(answer)
    raise TimeoutError


def _open(spec: RoundSpec, session_id: bytes) -> DeviceSession:
    """Return a session of a device with a full taste, under the id that it has joined with."""
    given = [session_id]
    items = np.random.default_rng().choice(spec.task.items, spec.task.capacity, replace=False).astype(np.int64)
    return DeviceSession(spec, items, random_bytes=lambda count: given.pop() if given else secrets.token_bytes(count))


@dataclass(frozen=True, slots=True, repr=False)
class _Calls:
    """The calls of one session."""

    client: httpx.AsyncClient
    pair: Pair
    session: DeviceSession
    ticket: str
    fleet: Fleet

    async def send(self, messages: list[Sending], seconds: list[float]) -> list[bytes]:
        """Send a step's messages at the same time and return the answers."""
        return list(await asyncio.gather(*(self._put(message, seconds) for message in messages)))

    async def _put(self, message: Sending, seconds: list[float]) -> bytes:
        path = f"/v1/rounds/{self.session.round.digest.hex()}/sessions/{self.session.session_id.hex()}/{message.name}"
        headers = {"content-type": "application/octet-stream", "secemb-ticket": self.ticket}
        if message.mac:
            headers["secemb-proof"] = message.mac.hex()
        url, start = self.pair.servers[message.server].url + path, perf_counter()
        for _ in range(_TRIES):
            answer = await self.client.put(url, content=message.body, headers=headers)
            self.fleet.sent += len(message.body)
            self.fleet.received += len(answer.content)
            if answer.status_code != 429:
                break
            await _pause(answer)
        answer.raise_for_status()
        seconds.append(perf_counter() - start)
        return answer.content


async def _pause(answer: httpx.Response) -> None:
    await asyncio.sleep(min(float(answer.headers["retry-after"]), _LONGEST_PAUSE))


async def _await_published(client: httpx.AsyncClient, pair: Pair, rounds: int) -> None:
    for _ in range(_TRIES):
        answers = [await client.get(f"{one.url}/v1/tasks/{pair.task.task_id.hex()}") for one in pair.servers]
        if all(answer.json()["model_version"] >= rounds for answer in answers):
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise TimeoutError("the rounds were not published")
