"""A device of the SDK in the simulation: its steps are driven by hand, over a line that may do anything to a request.

A fault is decided for every request. An app may die after every effect and every write: to die before the next one is
the same, since nothing has changed in between but what is lost. What either server saw of each session is remembered
for ever, so that a test can tell whether a path was used twice.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
from tests.simulation.pair import Pair

from secemb_sdk.context import Context, Policy
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.records import Record
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import Floats, Gradients, Ratings
from secemb_sdk.round.contribute import Contributed, Outcome, contribute
from secemb_sdk.steps import Answer, Lost, Pause, Request, Send, Steps, Work
from secemb_shared.messages import Kind
from secemb_shared.messages.relayed import box_bytes
from secemb_shared.randomness import Indices

SERVERS = ("http://127.0.0.1:1", "http://127.0.0.1:2")
SEALED = box_bytes(Kind.SUM_SHARE)  # bytes that may differ at the end of a relayed message: the longest box
FINE, LOST, UNANSWERED, DOUBLED, DELAYED = "fine", "lost", "unanswered", "doubled", "delayed"
FAULTS = (FINE, LOST, UNANSWERED, DOUBLED, DELAYED)

Result = TypeVar("Result")
Choose = Callable[[], str]
Dies = Callable[[], bool]


class KilledError(BaseException):
    """The app is gone: nothing it would have done after this happens."""


@dataclass
class Marking:
    """A model whose gradients are whole numbers that tell devices apart, so that sums can be read off.

    It never trains twice alike, so that an update that is made anew is another update.
    """

    mark: int
    row_width: int = 2
    dense_size: int = 2
    private_size: int = 1
    trained: int = 0

    def first_private(self, random: np.random.Generator) -> Floats:
        return np.zeros(1, dtype=np.float32)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        self.trained += 1
        by_row = np.tile(np.array([self.mark, -self.mood], dtype=np.float32), (ratings.items.size, 1))
        by_dense = np.array([self.mark, 0], dtype=np.float32)
        return Gradients(0.0, by_row, by_dense, np.ones(1, dtype=np.float32))

    @property
    def mood(self) -> int:
        """Return what the last training has added."""
        return 1 + self.trained % 11

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        return rows[:, 0]


def fine() -> str:
    return FINE


def never() -> bool:
    return False


class MortalHome(Home):
    """A home whose app may die after any write."""

    def __init__(self, folder: Path, cipher: FileCipher, dies: Dies) -> None:
        super().__init__(folder, cipher)
        self._dies = dies

    def write(self, name: str, record: Record) -> None:
        self._change(lambda: super(MortalHome, self).write(name, record))

    def remove(self, name: str) -> None:
        self._change(lambda: super(MortalHome, self).remove(name))

    def _change(self, change: Callable[[], None]) -> None:
        change()
        if self._dies():
            raise KilledError


@dataclass
class Seen:
    """What the servers saw: for each session, server and kind of message all bodies that ever arrived."""

    bodies: dict[tuple[str, int, str], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    acknowledged: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # updates, by session
    updates: dict[str, tuple[int, int]] = field(default_factory=dict)  # mark and mood, by session
    rounds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by session
    requests: list[tuple[int, str, str]] = field(default_factory=list)
    conflicts: int = 0  # refusals of a message because another one of its kind is there

    def note(self, request: Request, model: Marking) -> None:
        self.requests.append((request.server, request.method, request.path.rsplit("/", 1)[-1]))
        words = request.path.split("/")
        if request.method == "PUT":
            _, _, _, round_, _, session, what = words
            body = request.body
            if what.startswith("relayed-"):  # both servers may get their part; how often it is sealed does not matter
                what, body = what.removeprefix("relayed-"), request.body[:-SEALED]
                self.bodies[session, 1, what].add(body)
            self.bodies[session, request.server, what].add(body)
            self.rounds[session].add(round_)
            if what == "update":
                self.updates.setdefault(session, (model.mark, model.mood))

    def note_answer(self, request: Request, answer: Answer) -> None:
        if request.method == "PUT" and answer.status == 200:
            servers = {"update": {request.server}, "relayed-update": {0, 1}}.get(request.path.rsplit("/", 1)[-1], set())
            self.acknowledged[request.path.split("/")[5]] |= servers
        if request.method == "PUT" and b"session-conflict" in answer.body[:200]:
            self.conflicts += 1

    def check(self) -> None:
        """No path is used twice: one KEYS and one UPDATE a session and server, in one round."""
        for (_, server, what), bodies in self.bodies.items():
            assert len(bodies) == 1, f"server {server} saw {len(bodies)} different {what} of one session"
        for rounds in self.rounds.values():
            assert len(rounds) == 1, "a session appeared in two rounds"
        assert not self.conflicts, "a server holds other bytes of a session"


@dataclass
class Phone:
    """One device: its home, its taste, and whoever kills it."""

    pair: Pair
    folder: Path
    model: Marking
    seen: Seen = field(default_factory=Seen)
    fault: Choose = fine
    dies: Dies = never
    pace: float = 0.0
    seconds: float = 20.0
    allowed: Callable[[], bool] = lambda: True
    wall_clock: Callable[[], float] | None = None  # the servers', unless another is given
    options: dict[str, Any] = field(default_factory=dict)
    key: bytes | None = None
    token: str | None = None
    alter: Callable[[Request, Answer], Answer | Lost] = lambda _request, answer: answer  # what a bad server does
    sent_at: list[tuple[str, float]] = field(default_factory=list)
    work_seconds: float = 0.0  # how long this device takes to compute or to write
    held: list[Request] = field(default_factory=list)
    random_bytes: Callable[[int], bytes] | None = None
    deaths: int = 0

    def open(self) -> Context:
        """Open the home, as an app does when it starts."""
        extra = {} if self.random_bytes is None else {"random_bytes": self.random_bytes}
        vault = Vault(MortalHome(self.folder, FileCipher(self.key), self.dies), **extra)
        vault.bind(self.pair.task.task_id, SERVERS)
        fields: dict[str, Any] = {
            "vault": vault,
            "task_id": self.pair.task.task_id,
            "token": self.token,
            "policy": Policy(pace_seconds=self.pace, seconds=self.seconds, allowed=self.allowed),
            "model": self.model,
            "hold_out": 0.0,
            "clock": self.pair.clock,
            "wall_clock": self.wall_clock or self.pair.clock,
            **extra,
        }
        return Context(**(fields | self.options))

    def log(self, ratings: dict[int, float]) -> None:
        context = self.open()
        context.vault.log(ratings.items())
        context.vault.close()

    async def contribute(self) -> Outcome | None:
        """Open the app, take part and close it; None if it was killed on the way."""
        context = self.open()
        try:
            return await self.drive(contribute(context))
        except KilledError:
            self.deaths += 1
            return None
        finally:
            context.vault.close()  # as the system does for a process that is gone

    async def drive(self, steps: Steps[Result]) -> Result:
        """Carry out steps, with faults; `KilledError` after any of them."""
        try:
            effect = next(steps)
            while True:
                try:
                    found = await self.carry_out(effect)
                except Exception as error:
                    effect = steps.throw(error)
                else:
                    if self.dies():
                        raise KilledError
                    effect = steps.send(found)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            steps.close()

    async def carry_out(self, effect: Send | Pause | Work) -> Any:
        match effect:
            case Send(requests):
                return [await self.send(request) for request in requests]
            case Pause(seconds):
                self.pair.clock.now += seconds
                await self.pair.step()
                return None
            case Work(function):
                self.pair.clock.now += self.work_seconds
                return function()

    async def send(self, request: Request) -> Answer | Lost:
        await self.deliver_held()
        self.sent_at.append((request.path.rsplit("/", 1)[-1], self.pair.clock.now))
        fault = self.fault()
        if fault == LOST:
            return Lost("lost by the test")
        if fault == DELAYED:
            self.held.append(request)
            return Lost("delayed by the test")
        if fault == DOUBLED:
            await self.deliver(request)
        answer = await self.deliver(request)
        if fault == UNANSWERED or answer is None:
            return Lost("the answer was cut")
        self.seen.note_answer(request, answer)
        return self.alter(request, answer)

    async def deliver_held(self) -> None:
        """Let requests arrive that the device has given up long ago."""
        while self.held:
            await self.deliver(self.held.pop(0))

    async def deliver(self, request: Request) -> Answer | None:
        self.seen.note(request, self.model)
        url = f"https://server{request.server}{request.path}"
        sent = httpx.Request(request.method, url, headers=dict(request.headers), content=request.body or None)
        answer = await self.pair.send(request.server, sent)
        if answer is None or len(answer.content) > request.most:
            return None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(status=answer.status_code, headers=headers, body=answer.content)


def a_phone(pair: Pair, number: int, **fields: Any) -> Phone:
    """Return device number so-and-so with two ratings, one of which everybody has."""
    folder = fields.pop("folder", pair.folder / f"phone{number}")
    phone = Phone(pair, folder, Marking(2**number), **fields)
    phone.log({0: 4.0, 1 + number: 2.0})
    return phone


async def contributed(phone: Phone) -> Receipt:
    """Let a device take part, which must succeed at once."""
    outcome = await phone.contribute()
    assert isinstance(outcome, Contributed), outcome
    return outcome.receipt


def noticed(phone: Phone) -> set[str]:
    """Return the kinds of misconduct that a device has counted."""
    vault = phone.open().vault
    try:
        return set(vault.detections())
    finally:
        vault.close()


def puts(phone: Phone) -> list[tuple[int, str]]:
    """Return the messages that a device has sent: to which server, and what."""
    return [(server, what) for server, method, what in phone.seen.requests if method == "PUT"]


async def until_contributed(phones: list[Phone], *, tries: int = 40) -> list[Contributed]:
    """Let all devices try until each has contributed, as time goes on."""
    done: dict[int, Contributed] = {}
    pair = phones[0].pair
    for _ in range(tries):
        for index, phone in enumerate(phones):
            if index not in done:
                outcome = await phone.contribute()
                if isinstance(outcome, Contributed):
                    done[index] = outcome
        if len(done) == len(phones):
            return [done[index] for index in range(len(phones))]
        decision = await pair.step()
        pair.clock.now = max(pair.clock.now + 1, getattr(decision, "until", 0.0))
    raise AssertionError("a device does not come back")
