"""Simulated devices over HTTP: the SDK as an app uses it, a few hundred times in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from secemb_sdk import Contributed, Device, Dropped, Policy
from secemb_sdk.context import Context
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.vault import Vault
from secemb_sdk.http import HttpTransport
from secemb_tools.simulation.world import World
from secemb_tools.transport import Transport

_LONGEST_PAUSE = 0.3  # seconds before a refused device retries
# Devices of a demonstration have no timing to hide, and someone is waiting.
_POLICY = Policy(pace_seconds=0.0, seconds=60.0)


@dataclass(slots=True)
class Participation:
    """The outcomes of one round's devices."""

    receipts: list[Receipt] = field(default_factory=list)
    dropped: int = 0
    troubled: int = 0  # devices that uploaded zeros


class Fleet:
    """All devices; each has its own home, which is open while the device takes part."""

    def __init__(
        self, world: World, urls: tuple[str, str], folder: Path, connections: list[HttpTransport], way: Transport
    ) -> None:
        self._world, self._urls, self._folder, self._connections, self._way = world, urls, folder, connections, way

    async def take_part(self, number: int) -> Participation:
        """Let every device of this round's cohort take part, all at once."""
        found = Participation()
        people = self._world.schedule.people_of(number).tolist()
        try:
            async with asyncio.TaskGroup() as group:
                for person, connection in zip(people, self._connections, strict=True):
                    group.create_task(self._one(person, connection, found))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None  # the others have the same cause
        return found

    async def _one(self, person: int, connection: HttpTransport, found: Participation) -> None:
        context = await asyncio.to_thread(self._open, person)
        try:
            outcome = await _contribute(Device(context, connection))
        finally:
            context.vault.close()
        if isinstance(outcome, Dropped):
            found.dropped += 1
        else:
            found.receipts.append(outcome.receipt)
            found.troubled += outcome.trouble is not None

    def _open(self, person: int) -> Context:
        """Open a device's home; the first time, log its owner's ratings."""
        world, task_id = self._world, self._world.task.task_id
        home = Home(self._folder / f"device{person}", FileCipher(None))
        vault = Vault(home, random_bytes=lambda _: world.hold_out_key_of(person))  # drawn once, for the identity
        vault.bind(task_id, self._urls)
        if not vault.ratings():
            vault.log(world.ratings_of(person).items())
        return Context(
            vault=vault,
            task_id=task_id,
            policy=_POLICY,
            model=world.model_of(person),
            epochs=world.epochs,
            hold_out=world.hold_out,
            transport=self._way.value,
        )


@asynccontextmanager
async def fleet_of(world: World, urls: tuple[str, str], folder: Path, way: Transport) -> AsyncIterator[Fleet]:
    """Create a fleet with as many connections as a round has devices."""
    async with AsyncExitStack() as stack:
        connections = [HttpTransport(urls) for _ in range(world.task.cohort)]
        for connection in connections:
            stack.push_async_callback(connection.aclose)
        yield Fleet(world, urls, folder, connections, way)


async def _contribute(device: Device) -> Contributed | Dropped:
    while True:
        outcome = await device.contribute()
        if isinstance(outcome, Contributed | Dropped):
            return outcome
        await asyncio.sleep(min(outcome.seconds, _LONGEST_PAUSE))
