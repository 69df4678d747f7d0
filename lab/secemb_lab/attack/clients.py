"""Hostile clients, each running until stopped: sessions that break a rule, and requests that slow a server down."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import numpy as np

from secemb_lab.attack.forged_session import Forger, Messages, macs_of
from secemb_lab.attack.forgeries import Forgery
from secemb_lab.loadtest.fleet import headers_of, path_of
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.randomness import Indices

_PAUSE = 0.05  # seconds between two refused requests to join
_SECONDS = 30.0
_HEAD = b"a-header: " + b"x" * 4000 + b"\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    """Two servers, and the resources of hostile clients: tokens, and items that no honest device rates."""

    urls: tuple[str, str]
    task: TaskSpec
    tokens: tuple[str, ...] = field(repr=False)
    items: tuple[int, ...]
    last: int = 0  # the last attacked round: a client with a seat in it takes no other


@dataclass(frozen=True, slots=True)
class Seat:
    """A session that has joined."""

    round: RoundSpec
    session_id: bytes
    ticket: str


Act: TypeAlias = Callable[["Client", Seat], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Client:
    """One hostile client. It uses several tokens in turn, because servers delay one that failed."""

    http: httpx.AsyncClient
    target: Target
    tokens: Iterator[str] = field(repr=False)

    @property
    def items(self) -> Indices:
        """Return items for a session."""
        return np.array(self.target.items[: self.target.task.capacity], dtype=np.int64)

    async def seat(self, token: str, step: str = "join") -> Seat | int:
        """Ask for a ticket once; without one return the number of the last round that has ended, or -1."""
        session_id, task = secrets.token_bytes(16), self.target.task
        url = f"{self.target.urls[0]}/v1/tasks/{task.task_id.hex()}/{step}"
        headers = {"authorization": f"Bearer {token}"}
        answer = await self.http.post(url, json={"session": session_id.hex()}, headers=headers)
        found = answer.json()
        if answer.status_code != 200 or not found.get("ticket"):
            return int((found.get("rounds") or {}).get("until", -1))
        return Seat(RoundSpec.decode(found["round"].encode(), task), session_id, found["ticket"])

    async def put(self, role: int, seat: Seat, what: str, body: bytes, mac: bytes = b"") -> httpx.Response:
        """Send one message of a session."""
        url = self.target.urls[role] + path_of(seat.round, seat.session_id, what)
        method = "POST" if what == "rows" else "PUT"
        return await self.http.request(method, url, content=body, headers=headers_of(seat.ticket, mac))

    async def send(self, seat: Seat, keys: Messages, update: Messages) -> None:
        """Send a whole session."""
        macs = macs_of(seat.round, seat.session_id, keys, update)
        for role in (0, 1):
            await self.put(role, seat, "keys", keys[role])
        for role in (0, 1):
            await self.put(role, seat, "update", update[role], macs[role])

    def honest(self, seat: Seat) -> DeviceSession:
        """Return an honest session, with the id that joined."""
        given = [seat.session_id]
        return DeviceSession(
            seat.round, self.items, random_bytes=lambda count: given.pop() if given else secrets.token_bytes(count)
        )

    async def take_seats(self, act: Act, step: str = "join") -> None:
        """Join every round up to the last, once, and run this in it; reads continue until stopped."""
        token, taken = next(self.tokens), -1
        while True:
            with suppress(httpx.HTTPError):
                found = await self.seat(token, step)
                if isinstance(found, Seat):
                    await act(self, found)
                    taken = found.round.number
                    if step == "join" and taken >= self.target.last:
                        return
                elif found >= taken:  # another token would get a second seat of a round that is still open
                    token = next(self.tokens)
            await asyncio.sleep(_PAUSE)


def forging(forgery: Forgery) -> Act:
    """Return a function that sends a forged session in training rounds, and zeros in others."""

    async def act(client: Client, seat: Seat) -> None:
        if seat.round.kind != TRAIN:
            session = client.honest(seat)
            await client.send(seat, session.keys, session.write_nothing())
            return
        make = partial(Forger.begin, seat.round, seat.session_id, client.items)
        _, keys, update = await asyncio.to_thread(forgery.make, make)
        await client.send(seat, keys, update)

    return act


async def lie(client: Client, seat: Seat) -> None:
    """Report impossible figures, and train with zeros."""
    session = client.honest(seat)
    if seat.round.kind == TRAIN:
        await client.send(seat, session.keys, session.write_nothing())
        return
    size = seat.round.sum_size
    values = np.full(size, 1e6) if seat.round.kind == EVALUATE else np.full(size, 1e5)
    await client.send(seat, session.keys, session.write_sums(values))


async def keep_silent(client: Client, seat: Seat) -> None:
    """Join and send nothing."""


async def stop_half_way(client: Client, seat: Seat) -> None:
    """Send keys and no update."""
    for role, keys in enumerate(client.honest(seat).keys):
        await client.put(role, seat, "keys", keys)


async def frame(client: Client, seat: Seat) -> None:
    """Cause faults that could be attributed to the other server: a false MAC, and boxes that cannot be decrypted."""
    session = client.honest(seat)
    for role in (0, 1):
        await client.put(role, seat, "keys", session.keys[role])
    update = session.write_nothing()
    for role, mac in enumerate(session.marks.macs):
        for false in (secrets.token_bytes(len(mac)), mac[:-1]):
            for _ in range(3):
                await client.put(role, seat, "update", update[role], false)
    if seat.round.task.relays:
        await client.put(0, seat, "relayed-keys", session.keys[0] + secrets.token_bytes(1000))
    for role in (0, 1):  # it still takes part, so that the round does not wait for it
        await client.put(role, seat, "update", update[role], session.marks.macs[role])


async def read_rows(client: Client, seat: Seat) -> None:
    """Read rows repeatedly with one ticket."""
    for _ in range(20):
        for role, keys in enumerate(client.honest(seat).keys):
            await client.put(role, seat, "rows", keys)


async def withhold_bodies(client: Client, seat: Seat) -> None:
    """Announce 70 bodies to each server with one ticket and send none; then take part."""
    session = client.honest(seat)
    head = (
        f"PUT {path_of(seat.round, seat.session_id, 'keys')} HTTP/1.1\r\nhost: x\r\n"
        f"content-type: application/octet-stream\r\nsecemb-ticket: {seat.ticket}\r\n"
        f"content-length: {len(session.keys[0])}\r\n\r\n"
    ).encode()
    await asyncio.gather(*(_hold(url, head, 1.0) for url in client.target.urls for _ in range(70)))
    await client.send(seat, session.keys, session.write_nothing())


async def stay_idle(target: Target, connections: int) -> None:
    """Keep connections open to each server, and replace closed ones."""

    async def one(url: str) -> None:
        while True:
            await _hold(url, b"", 60.0)
            await asyncio.sleep(_PAUSE)

    await asyncio.gather(*(one(url) for url in target.urls for _ in range(connections)))


async def send_headers(target: Target, connections: int, megabytes: int) -> None:
    """Send endless headers, as fast as they are accepted, up to this many megabytes in total."""
    left = megabytes * 1_000_000

    async def one(url: str) -> None:
        nonlocal left
        while left > 0:
            with suppress(OSError):
                reader, writer = await _connect(url)
                writer.write(b"POST / HTTP/1.1\r\nhost: x\r\n")
                try:
                    while left > 0 and not reader.at_eof():
                        writer.write(_HEAD)
                        await asyncio.wait_for(writer.drain(), 5.0)
                        left -= len(_HEAD)
                except (OSError, TimeoutError):
                    pass
                finally:
                    writer.close()
            await asyncio.sleep(_PAUSE)

    await asyncio.gather(*(one(url) for url in target.urls for _ in range(connections)))


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(url)
    return await asyncio.open_connection(place.hostname, place.port)


async def _hold(url: str, data: bytes, seconds: float) -> None:
    """Open a connection, send this, and wait until the server closes it or a timeout."""
    with suppress(OSError, TimeoutError):
        reader, writer = await _connect(url)
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                await reader.read()
        finally:
            writer.close()


async def with_tokens(target: Target, act: Act, count: int, tokens: range, step: str = "join") -> None:
    """Let this many clients take seats, and distribute these tokens among them."""
    limits = httpx.Limits(max_connections=count + 10)
    async with httpx.AsyncClient(timeout=_SECONDS, limits=limits, trust_env=False) as http:
        owned = [target.tokens[one] for one in tokens]
        clients = [Client(http, target, cycle(owned[one::count])) for one in range(count)]
        work: list[Coroutine[Any, Any, None]] = [one.take_seats(act, step) for one in clients]
        await asyncio.gather(*work)
