"""The bytes of one device in a round, counted on the wire: real servers, the SDK's own client, a proxy in between."""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secemb_lab.wire.proxy import HERE, Bytes, Passed, proxy
from secemb_sdk import Contributed, Device, Ended, Policy
from secemb_sdk.models import Model
from secemb_shared.messages.spec import NEXT
from secemb_tools.local import Pair
from secemb_tools.operate.certificate import make_identity
from secemb_tools.transport import Transport

_TRIES = 400
# Fetched only once by a device: the task, where a direct device also asks server 1 for its round, server 1's key, and
# the words of a task about texts.
_ONCE = ("task", "relay", "catalogue")


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of one device, up and down, both servers together."""

    first: dict[str, Bytes]  # of its first round, by request
    later: dict[str, Bytes]  # of the next one, on the same connections
    reconnected: dict[str, Bytes]  # of the one after, on new connections

    def figures(self) -> dict[str, Bytes]:
        """Return totals; what a device fetches only once is separate from its first round."""
        whole, usual = (total({name: one.get(name, (0, 0)) for name in _ONCE}) for one in (self.first, self.later))
        once, first = _less(whole, usual), total(self.first)
        return {
            "once": once,
            "first": _less(first, once),
            "later": total(self.later),
            "reconnected": total(self.reconnected),
        }


async def measure_rounds(
    pair: Pair, folder: Path, transport: Transport, *, tls: bool = False, model: Model | None = None
) -> Moved:
    """Let a device take part in three rounds; a second device makes up the cohort."""
    home = folder / f"{transport}-{'tls' if tls else 'plain'}"
    async with AsyncExitStack() as stack:
        counted, servers, ca = await _ways_in(stack, pair, folder if tls else None)
        other = _device(pair, home.with_suffix(".other"), pair.urls, transport, None, model)
        second = await stack.enter_async_context(other)
        _fill(second, pair)
        async with _device(pair, home, servers, transport, ca, model) as first:
            _fill(first, pair)
            found = [await _play(first, second, counted) for _ in range(2)]
        async with _device(pair, home, servers, transport, ca, model) as first:
            found.append(await _play(first, second, counted))
    return Moved(*found)


def total(moved: dict[str, Bytes]) -> Bytes:
    """Return all bytes up and all bytes down."""
    return sum(up for up, _ in moved.values()), sum(down for _, down in moved.values())


def _less(all_: Bytes, some: Bytes) -> Bytes:
    return all_[0] - some[0], all_[1] - some[1]


async def _ways_in(
    stack: AsyncExitStack, pair: Pair, folder: Path | None
) -> tuple[list[Passed], tuple[str, str], Path | None]:
    """Return the byte counters, the addresses to call and, with a folder for it, the trusted certificate."""
    ports, ca, tls = [server.ports.devices for server in pair.servers], None, None
    if folder is not None:
        ca, tls = _certificate(folder)
        ports = [(await stack.enter_async_context(proxy(port, tls=tls)))[0] for port in ports]
    counted = [await stack.enter_async_context(proxy(port)) for port in ports]
    urls = [f"{'http' if tls is None else 'https'}://{HERE}:{port}" for port, _ in counted]
    return [passed for _, passed in counted], (urls[0], urls[1]), ca


def _certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file that a device trusts and what a server shows: one self-signed P-256 certificate."""
    identity, files = make_identity(HERE), (folder / "wire.crt", folder / "wire.key")
    for path, text in zip(files, (identity.certificate, identity.key), strict=True):
        path.write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return files[0], context


def _device(
    pair: Pair, home: Path, servers: tuple[str, str], transport: Transport, ca: Path | None, model: Model | None
) -> AbstractAsyncContextManager[Device]:
    return Device.open(
        home=home,
        servers=servers,
        task=pair.task.task_id.hex(),
        policy=Policy(pace_seconds=0.0, seconds=60.0),
        transport=transport.value,
        hold_out=0.0,
        ca=ca,
        model=model,
    )


def _fill(device: Device, pair: Pair) -> None:
    """Give a device as many ratings or events as a round has room for; without texts it sends as much as with some."""
    random = np.random.default_rng(7)
    items = random.choice(pair.task.items, pair.task.capacity, replace=False).tolist()
    if pair.task.loss == NEXT:
        device.log_events((item, None) for item in items)
    else:
        device.log_many({item: float(random.integers(1, 6)) for item in items})


async def _play(first: Device, second: Device, counted: Sequence[Passed]) -> dict[str, Bytes]:
    """Let both devices take part in a round; return the bytes of the first one.

    The second one goes before it, so that the round is open and no request is wasted while bytes are counted.
    """
    await _contribute(second)
    for one in counted:
        one.take()
    await _contribute(first)
    await asyncio.sleep(0.05)  # the last bytes of an answer may still be counted
    return _together([one.take() for one in counted])


async def _contribute(device: Device) -> None:
    for _ in range(_TRIES):
        outcome = await device.contribute()
        if isinstance(outcome, Contributed):
            return
        if isinstance(outcome, Ended):
            break
        await asyncio.sleep(min(outcome.seconds, 0.3))
    raise TimeoutError("no round accepted the device")


def _together(taken: list[dict[str, Bytes]]) -> dict[str, Bytes]:
    """Return the bytes of both servers, by request."""
    names = dict.fromkeys(name for one in taken for name in one)
    return {name: total({str(at): one.get(name, (0, 0)) for at, one in enumerate(taken)}) for name in names}
