"""Carries what the steps of a device ask for to the pair of servers, and does to it what a test plants."""

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from tempfile import mkdtemp
from typing import TypeVar

import httpx
import numpy as np
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair

from secemb_sdk.context import Context, Policy
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.vault import Vault
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_sdk.round.join import Published
from secemb_sdk.steps import Answer, Lost, Request, Steps, drive_async
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

Result = TypeVar("Result")
Tamper = Callable[[Request, Answer], Answer | Lost]


def honest(_: Request, answer: Answer) -> Answer:
    """Change nothing."""
    return answer


@dataclass(eq=False)
class Carrier:
    """A device's transport to both servers, with a record of what passed."""

    pair: Pair
    tamper: Tamper = honest
    sent: list[Request] = field(default_factory=list)
    received: int = 0  # bytes of answers
    waited: float = 0.0

    async def send(self, request: Request) -> Answer | Lost:
        """Carry one request, as the transport of an app would."""
        self.sent.append(request)
        url = f"https://server{request.server}{request.path}"
        passed = httpx.Request(request.method, url, headers=dict(request.headers), content=request.body)
        found = await self.pair.send(request.server, passed)
        if found is None or len(found.content) > request.most:
            return Lost("no answer, or one longer than it may be")
        self.received += len(found.content)
        return self.tamper(request, Answer(status=found.status_code, headers=dict(found.headers), body=found.content))

    def exchange(self, token: str | None = None, random_bytes: RandomBytes = secure_bytes) -> Exchange:
        """Return what a device's steps ask through; its time is what they have waited."""
        vault = Vault(Home(mkdtemp(dir=self.pair.folder), FileCipher()))
        weakref.finalize(self, vault.close)
        vault.bind(self.pair.task.task_id, ("https://server0", "https://server1"))
        context = Context(
            vault=vault,
            task_id=self.pair.task.task_id,
            token=token,
            policy=Policy(pace_seconds=0, seconds=10),
            clock=lambda: self.waited,
            random_bytes=random_bytes,
        )
        return Exchange(context)

    async def run(self, steps: Steps[Result]) -> Result:
        """Carry out steps; pauses take no time."""
        return await drive_async(steps, self, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waited += seconds


@dataclass(frozen=True)
class Taste:
    """A model with a dense part and a private part, whose scores are a matrix product."""

    row_width: int
    dense_size: int

    @property
    def private_size(self) -> int:
        return self.row_width

    def first_private(self, random: np.random.Generator) -> Floats:
        return random.standard_normal(self.row_width, dtype=np.float32)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        raise NotImplementedError

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        assert rows.shape == (items.size, self.row_width)
        scores: Floats = rows @ private + dense.sum(dtype=np.float32)
        return scores


def taste_of(pair: Pair) -> tuple[Taste, Floats]:
    """Return a model of the pair's task and somebody's private part."""
    model = Taste(pair.task.row_width, pair.task.dense_size)
    return model, model.first_private(np.random.default_rng(5))


async def published(pair: Pair) -> Published:
    """Return what server 0 says is published."""
    found = await pair.parties[0].ledger.published_version(pair.task.task_id)
    assert found is not None
    return Published(found.version, found.digest)


def dense(pair: Pair, version: int) -> Floats:
    """Return the dense part of a version."""
    return pair.parties[0].models.load(version).dense


async def train(pair: Pair, rounds: int = 1) -> None:
    """Let the model move on by some versions."""
    for _ in range(rounds):
        await pair.step()
        record = await pair.parties[0].ledger.current_round(pair.task.task_id)
        assert record is not None
        for number in range(2):
            name = hashlib.sha256(b"%d %d" % (record.number, number)).digest()[:16]
            await a_device(pair, number, name=name).take_part()
        await pair.finish()
