"""Carries what the steps of a device ask for to the pair of servers, and does to it what a test plants."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import numpy as np
from tests.simulation.device import a_device
from tests.simulation.pair import Pair

from secemb_sdk.errors import UnavailableError
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_sdk.recommend import Published
from secemb_sdk.steps import Answer, Lost, Request, Steps, drive_async, pause, send
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices

Result = TypeVar("Result")
Tamper = Callable[[Request, Answer], Answer | Lost]


def honest(_: Request, answer: Answer) -> Answer:
    """Change nothing."""
    return answer


def ask(*requests: Request) -> Steps[list[Answer]]:
    """Send requests, and those that were lost or came too early again, for a while."""
    answered: dict[int, Answer] = {}
    for _ in range(5):
        missing = [at for at in range(len(requests)) if at not in answered]
        for at, answer in zip(missing, (yield from send(*(requests[at] for at in missing))), strict=True):
            if isinstance(answer, Answer) and answer.status not in (429, 503):
                answered[at] = answer
        if len(answered) == len(requests):
            return [answered[at] for at in range(len(requests))]
        yield from pause(1.0)
    raise UnavailableError("a server does not answer")


@dataclass
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


def dense_of(round_: RoundSpec) -> Steps[Floats | None]:
    """Return the dense part that a round reads, from server 0."""
    path = f"/v1/tasks/{round_.task.task_id.hex()}/dense/{round_.model_version}"
    (answer,) = yield from send(Request(server=0, method="GET", path=path))
    assert isinstance(answer, Answer)
    return np.frombuffer(answer.body, "<f4").astype(np.float32)


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
