"""A lean device for measurements: its messages, and the requests that carry them."""

import asyncio
import secrets
from base64 import urlsafe_b64decode
from dataclasses import dataclass

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
# A full server asks devices to wait up to a minute; here the next round is a moment away.
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
    """A server's answer, and the bytes of all bodies that it took; a full server makes devices repeat themselves."""

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
