"""Simulated devices over HTTP: the SDK as an app uses it, up to a few hundred times in one process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from secemb_sdk import Contributed, Device, NotNow, Outcome, Policy
from secemb_sdk.context import Context
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.records import Events
from secemb_sdk.home.vault import Vault
from secemb_sdk.http import HttpTransport
from secemb_sdk.models.interface import reads_texts
from secemb_shared.messages.spec import NEXT
from secemb_shared.randomness import RandomBytes, secure_bytes
from secemb_tools.local.pair import Pair
from secemb_tools.simulation.world import World
from secemb_tools.transport import Transport

_LONGEST_PAUSE = 0.3  # seconds before a refused device retries
# Simulated devices have no timing to hide, and someone is waiting.
_POLICY = Policy(pace_seconds=0.0, seconds=60.0)


@dataclass(slots=True)
class Participation:
    """The outcomes of one round's devices."""

    receipts: list[Receipt] = field(default_factory=list)
    dropped: int = 0
    troubled: int = 0  # devices that uploaded zeros


class Fleet:
    """All devices; each has its own home, which is open while the device takes part."""

    def __init__(self, world: World, pair: Pair, folder: Path, *, way: Transport, seats: Sequence["Seat"]) -> None:
        self._world, self._urls, self._folder, self._way, self._seats = world, pair.urls, folder, way, seats

    async def take_part(
        self, people: Sequence[int], *, number: int | None = None, patient: bool = True
    ) -> Participation:
        """Let these people's devices take part concurrently; a patient device retries until a round admits it.

        Given the round's number, each device chooses the same items as the simulated one.
        """
        found = Participation()
        try:
            async with asyncio.TaskGroup() as group:
                for person, seat in zip(people, self._seats, strict=False):
                    group.create_task(self._one(person, seat, found, number=number, patient=patient))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None  # the others have the same cause
        return found

    async def recommend(self, person: int, k: int) -> dict[int, float]:
        """Return the items that a person's device recommends to its owner, best first, with their scores."""
        seat = self._seats[0]
        context = await asyncio.to_thread(self._open, person, seat.token)
        try:
            found = await Device(context, seat.connection).recommend(k=k, titles=False)
            return {one.item: one.score for one in found}
        finally:
            context.vault.close()

    async def _one(self, person: int, seat: "Seat", found: Participation, *, number: int | None, patient: bool) -> None:
        draw = secure_bytes if number is None else self._world.device_bytes(number, person)
        context = await asyncio.to_thread(self._open, person, seat.token, draw)
        try:
            outcome = await _contribute(Device(context, seat.connection), patient=patient)
        finally:
            context.vault.close()
        if isinstance(outcome, Contributed):
            found.receipts.append(outcome.receipt)
            found.troubled += outcome.trouble is not None
        else:
            found.dropped += 1

    def _open(self, person: int, token: str | None, draw: RandomBytes = secure_bytes) -> Context:
        """Open a device's home; the first time, log its owner's ratings or events."""
        world, task_id = self._world, self._world.task.task_id
        home = Home(self._folder / f"device{person}", FileCipher(None))
        vault = Vault(home, random_bytes=lambda _: world.hold_out_key_of(person))  # drawn once, for the identity
        vault.bind(task_id, self._urls)
        model = world.model_of(person)
        if reads_texts(model):
            _log_texts(vault, world.texts_of(person))
        elif world.task.loss == NEXT:
            _log_events(vault, world.events_of(person))
        elif not vault.ratings():
            vault.log(world.ratings_of(person).items())
        return Context(
            vault=vault,
            task_id=task_id,
            token=token,
            policy=_POLICY,
            model=model,
            epochs=world.epochs,
            hold_out=world.hold_out,
            transport=self._way.value,
            random_bytes=draw,
        )


def _log_events(vault: Vault, events: Events) -> None:
    if not vault.events().items.size:
        vault.log_events(zip(events.items.tolist(), events.times.tolist(), strict=True), now=0.0)


def _log_texts(vault: Vault, texts: Sequence[str]) -> None:
    if not vault.texts().texts:
        vault.log_texts([(text, None) for text in texts], now=0.0)


@dataclass(frozen=True, slots=True)
class Seat:
    """The resources of one device in a round: a connection, and a token unless enrolment is open."""

    connection: HttpTransport
    token: str | None = field(default=None, repr=False)


@asynccontextmanager
async def fleet_of(
    world: World, pair: Pair, folder: Path, way: Transport, tokens: Sequence[str | None] = ()
) -> AsyncIterator[Fleet]:
    """Create a fleet with as many seats as there are tokens, or as a round has devices if enrolment is open."""
    async with AsyncExitStack() as stack:
        seats = []
        for token in tokens or [None] * world.task.cohort:
            seats.append(Seat(HttpTransport(pair.urls, ca=pair.ca), token))
            stack.push_async_callback(seats[-1].connection.aclose)
        yield Fleet(world, pair, folder, way=way, seats=seats)


async def _contribute(device: Device, *, patient: bool) -> Outcome:
    while True:
        outcome = await device.contribute()
        if not isinstance(outcome, NotNow) or not patient:
            return outcome
        await asyncio.sleep(min(outcome.seconds, _LONGEST_PAUSE))
