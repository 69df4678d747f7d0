"""Twenty devices and a pair with the deadlines of `secemb task create`: nearly every round is published.

Devices are those of the SDK, in the loop of docs/sdk.md; requests take time, and time is virtual. The task is that of
docs/operating.md: at least 20 sessions, so that the round needs every device of the fleet.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.devices.phone import KilledError, Marking
from tests.simulation.pair import Pair, a_pair
from tests.simulation.virtual_time import VirtualTime

import secemb_server0.leader
from secemb_party.ledger import RoundRecord, RoundState
from secemb_sdk import Contributed, Ended, Outcome, Policy
from secemb_sdk.context import Context
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.vault import Vault
from secemb_sdk.round.contribute import contribute
from secemb_sdk.steps import Answer, Pause, Request, Send, Steps, Work
from secemb_server0.conductor import Abort, Decision, Facts, Finished, Idle, Wait, decide

pytestmark = pytest.mark.asyncio

DEVICES = 20
SOAK = bool(os.environ.get("SOAK_TESTS"))
ROUNDS = 30 if SOAK else 12  # of these, not one may be lost
DISTURBED = 30 if SOAK else 12  # rounds with devices that drop out
GUIDE: dict[str, Any] = {
    "cohort": 100,
    "min_cohort": 20,
    "join_seconds": 60,
    "upload_seconds": 600,
}  # of docs/operating.md
SERVERS = ("http://127.0.0.1:1", "http://127.0.0.1:2")
LOOK_SECONDS = 10.0  # of the leader; while devices are expected, a test looks every second


@dataclass
class FleetDevice:
    """A device that takes part in round after round; it may drop out in the middle of one and come back later."""

    pair: Pair
    time: VirtualTime
    number: int
    random: random.Random
    drops_out: float = 0.0  # how likely, in each call
    loses_home: bool = False  # what it has begun is gone when it drops out
    requests_left: int | None = None  # before it drops out
    contributed: list[int] = field(default_factory=list)
    polls: int = 0

    async def live(self, *, first_call: float) -> None:
        """Call `contribute` as docs/sdk.md shows, until the task has ended."""
        await self.time.sleep(first_call)
        while True:
            drops = self.random.random() < self.drops_out
            self.requests_left = self.random.randint(3, 7) if drops else None
            self.polls += 1
            context = self._open()
            try:
                outcome = await self._drive(contribute(context))
            except KilledError:
                if self.loses_home:
                    context.vault.drop_session()
                context.vault.close()
                await self.time.sleep(self.random.uniform(30, 240))
                continue
            context.vault.close()
            if isinstance(outcome, Ended):
                return
            if isinstance(outcome, Contributed):
                self.contributed.append(outcome.receipt.round)
            else:
                await self.time.sleep(outcome.seconds)

    async def _drive(self, steps: Steps[Outcome]) -> Outcome:
        """Carry out steps, one request after the other."""
        try:
            effect = next(steps)
            while True:
                match effect:
                    case Send(requests):
                        found: object = [await self._send(request) for request in requests]
                    case Pause(seconds):
                        await self.time.sleep(seconds)
                        found = None
                    case Work(function):
                        found = function()
                effect = steps.send(found)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome

    async def _send(self, request: Request) -> Answer:
        """Carry a request, in a moment."""
        if self.requests_left is not None:
            self.requests_left -= 1
            if self.requests_left < 0:
                raise KilledError
        await self.time.sleep(self.random.uniform(0.02, 0.4))
        url = f"https://server{request.server}{request.path}"
        sent = httpx.Request(request.method, url, headers=dict(request.headers), content=request.body or None)
        answer = await self.pair.send(request.server, sent)
        assert answer is not None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(status=answer.status_code, headers=headers, body=answer.content)

    def _open(self) -> Context:
        folder: Path = self.pair.folder / f"phone{self.number}"
        vault = Vault(Home(folder, FileCipher()))
        vault.bind(self.pair.task.task_id, SERVERS)
        if not vault.ratings():
            vault.log([(0, 4.0), (1 + self.number, 2.0)])
        return Context(
            vault=vault,
            task_id=self.pair.task.task_id,
            token=f"device {self.number}",
            policy=Policy(),
            model=Marking(1),
            hold_out=0.0,
            clock=self.pair.clock,
            wall_clock=self.pair.clock,
        )


async def lead(pair: Pair, time: VirtualTime, *, longest: float) -> None:
    """Let server 0 conduct, until the task has ended."""
    end = pair.clock.now + longest
    while True:
        assert pair.clock.now < end, "the fleet makes no progress"
        match await pair.step():
            case Finished():
                return
            case Idle():
                await time.sleep(LOOK_SECONDS)
            case Wait(until):
                await time.sleep(min(until - pair.clock.now, 1.0))
            case None:
                await time.sleep(1.0)


async def run_fleet(
    pair: Pair, *, first_call: float = 0.0, longest: float = 86_400.0, **device: object
) -> list[FleetDevice]:
    """Run the whole task with twenty devices, whose first calls are within a minute."""
    for number in range(DEVICES):
        await pair.enrol(f"device {number}")  # so that a device has one session in a round
    time, randoms = VirtualTime(pair.clock), [random.Random(number) for number in range(DEVICES)]
    devices = [
        FleetDevice(pair, time, number, randoms[number], **device)  # type: ignore[arg-type]
        for number in range(DEVICES)
    ]
    lives = [one.live(first_call=first_call + one.random.uniform(0, 60)) for one in devices]
    await time.run(lead(pair, time, longest=longest), *lives)
    return devices


async def rounds_of(pair: Pair) -> list[RoundRecord]:
    return await pair.parties[0].ledger.rounds(pair.task.task_id, limit=1000)


async def share_published(pair: Pair) -> float:
    """Return the part of the rounds that were published."""
    states = Counter(one.state for one in await rounds_of(pair))
    return states[RoundState.PUBLISHED] / sum(states.values())


async def test_undisturbed_at_least_95_percent_of_rounds_are_published_and_every_device_is_in_them() -> None:
    async with a_pair(open_enrolment=False, rounds=ROUNDS, **GUIDE) as pair:
        devices = await run_fleet(pair)
        assert await share_published(pair) >= 0.95
        assert len(await rounds_of(pair)) <= ROUNDS + 1
        assert min(len(one.contributed) for one in devices) >= ROUNDS
        # A device learns when to come back: a call for the round, and few that are in vain.
        assert sum(one.polls for one in devices) <= ROUNDS * DEVICES * 3


async def test_with_30_percent_dropping_out_and_coming_back_at_least_90_percent_are_published() -> None:
    """The round needs all twenty: it waits for those who were interrupted, and they finish what they had begun."""
    async with a_pair(open_enrolment=False, rounds=DISTURBED, **GUIDE) as pair:
        await run_fleet(pair, drops_out=0.3)
        assert await share_published(pair) >= 0.9


async def test_with_30_percent_losing_their_session_at_least_90_percent_are_published() -> None:
    """Half of the fleet suffices. Who is lost holds a round up until `upload_seconds`, and is in the next one."""
    async with a_pair(open_enrolment=False, rounds=DISTURBED, **GUIDE | {"min_cohort": 10}) as pair:
        devices = await run_fleet(pair, drops_out=0.3, loses_home=True)
        assert await share_published(pair) >= 0.9
        assert sum(len(one.contributed) for one in devices) >= DEVICES * DISTURBED // 3
        assert min(len(one.contributed) for one in devices) >= DISTURBED // 10  # nobody is kept out


async def test_two_hours_without_devices_are_one_round_that_is_published_a_minute_after_the_first_20_came() -> None:
    async with a_pair(open_enrolment=False, rounds=1, **GUIDE) as pair:
        await run_fleet(pair, first_call=7200.0)
        (found,) = await rounds_of(pair)
        assert found.state is RoundState.PUBLISHED
        summaries = await pair.parties[0].ledger.session_summaries(found.round_id)
        assert len(summaries) == DEVICES
        assert found.opened_at < 1000.0 + LOOK_SECONDS
        assert found.ended_at is not None
        assert 7200.0 < found.ended_at - found.opened_at <= 7200.0 + 60.0 + 60.0  # they come within a minute
        first = found.join_until - pair.task.join_seconds
        assert found.ended_at - first <= 60.0 + 3.0  # the join window, and the pace of the last device to join


def abort_early(facts: Facts, now: float) -> Decision:
    """Decide as a conductor that gives up at the end of the join window, as if the clock began with the round."""
    over = facts.started and now >= facts.join_until
    if facts.state is RoundState.OPEN and over and facts.complete < facts.min_cohort:
        return Abort("too few sessions")
    return decide(facts, now)


async def test_a_conductor_that_gives_up_after_the_join_window_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secemb_server0.leader, "decide", abort_early)
    async with a_pair(open_enrolment=False, rounds=3, **GUIDE) as pair:
        with pytest.raises(AssertionError, match="the fleet makes no progress"):
            await run_fleet(pair, drops_out=0.3, longest=1000.0)
        assert await share_published(pair) < 0.9
