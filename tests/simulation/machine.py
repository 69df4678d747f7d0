"""A Hypothesis machine that does to two servers whatever the world may do to them."""

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.devices.scripted import KEYS, UPDATE, WORDS, Device, flipped
from tests.simulation.invariants import Invariants
from tests.simulation.pair import Pair, a_task, new_folder

from secemb_party.control import Control
from secemb_party.ledger import RoundState, What
from secemb_party.operators import Order
from secemb_party.tickets import CLOCK_TOLERANCE
from secemb_server0.conductor import Wait

ROLES = st.sampled_from([(0, 1), (1, 0), (0,), (1,)])
ROLE = st.sampled_from([0, 1])
WHAT = st.sampled_from([KEYS, UPDATE])
TWISTS = st.sampled_from([None, None, None, KEYS, UPDATE, WORDS])
WILD = st.sampled_from([False, False, False, False, True])
ORDER = Order("admin", "so the machine wills")
SETTLED = {200, 403, 410}  # what an acknowledged message may get later: the same again, or too late


class Rounds(RuleBasedStateMachine):
    """Devices that come, stay and go; servers that crash; a line that loses."""

    norm_bound = 0  # in most histories nothing is proved: proofs take most of a session's time
    devices: Bundle[Device] = Bundle("devices")

    @initialize(target=devices, count=st.integers(0, 3))
    def start(self, count: int) -> "MultipleResults[Device]":
        """Start both servers, with so many devices that have done their part already."""
        self.runner = asyncio.Runner()
        self.pair = Pair(new_folder(), a_task(norm_bound=self.norm_bound))
        self.runner.run(self.pair.start())
        self.truth = Invariants(self.pair)
        self.runner.run(self.pair.step())
        return self.take_part(count)

    # Devices.

    @rule(target=devices, twist=TWISTS, wild=WILD)
    def join(self, twist: str | None, wild: bool) -> "Device | MultipleResults[Device]":
        device = self.new_device(twist)
        device.wild = wild
        self.runner.run(self.knock(device))
        return device if device.session is not None else multiple()

    @rule(target=devices, count=st.integers(1, 3), wild=WILD)
    def come(self, count: int, wild: bool) -> "MultipleResults[Device]":
        return self.take_part(count, wild=wild)

    def take_part(self, count: int, *, wild: bool = False) -> "MultipleResults[Device]":
        """Wait for a round and do all that good devices do, as far as they get; the first may spoil the sum."""
        devices = [self.new_device(None) for _ in range(count)]
        for device in devices[:1]:
            device.wild = wild
        for device in devices:
            self.runner.run(self.wait_for_round(device))
        inside = [device for device in devices if device.session is not None]
        for device in inside:
            for what in (KEYS, UPDATE):
                for role in (0, 1):
                    self.runner.run(self.send(device, role, what))
        return multiple(*inside)

    @rule(device=devices, what=WHAT, roles=ROLES)
    def upload(self, device: Device, what: str, roles: tuple[int, ...]) -> None:
        """Send keys or update to both servers or to one, for the first time or again."""
        for role in roles:
            self.runner.run(self.send(device, role, what))

    @rule(device=devices, role=ROLE, what=WHAT, at=st.sampled_from([24, 40, 44]))
    def resend_changed(self, device: Device, role: int, what: str, at: int) -> None:
        """Send other bytes for a session that is in use."""
        if (role, what) in device.answers:
            answer = self.runner.run(device.put(role, what, flipped(device.body(role, what), at)))
            assert answer is None or answer.status_code in {409, 403, 410}, answer.text

    @rule(device=consumes(devices))
    def drop(self, device: Device) -> None:
        """Never hear of a device again."""

    # Time and the leader.

    @rule(seconds=st.sampled_from([1, 5, 10, 11, 20, 30, 31]))
    def advance_time(self, seconds: int) -> None:
        self.pair.clock.now += seconds

    @rule(steps=st.sampled_from([1, 1, 2, 3]))
    def lead(self, steps: int) -> None:
        for _ in range(steps):
            self.runner.run(self.pair.step())

    @rule(steps=st.sampled_from([1, 2, 4, 8]))
    def lead_on(self, steps: int) -> None:
        """Let the leader go on, and turn the clock to the very moment that it waits for."""
        for _ in range(steps):
            self.runner.run(self.lead_once())

    @rule(role=ROLE)
    def collect_garbage(self, role: int) -> None:
        self.runner.run(self.pair.collect_garbage(role))

    # Operators.

    @rule(role=ROLE)
    def pause(self, role: int) -> None:
        """Let no new round begin at one server; which was its latest is remembered."""
        if self.steer(role, lambda control: control.tell(What.PAUSE, ORDER)):
            latest = self.runner.run(self.pair.parties[role].ledger.last_round(self.pair.task.task_id))
            self.truth.paused.setdefault(role, latest.number if latest is not None else -1)

    @rule(role=ROLE)
    def resume(self, role: int) -> None:
        self.truth.paused.pop(role, None)
        self.steer(role, lambda control: control.lift(What.PAUSE, ORDER))

    @rule(role=ROLE)
    def drain(self, role: int) -> None:
        self.steer(role, lambda control: control.tell(What.DRAIN, ORDER))

    @rule(role=ROLE)
    def end_drain(self, role: int) -> None:
        self.steer(role, lambda control: control.lift(What.DRAIN, ORDER))

    @rule()
    def close(self) -> None:
        """Have the open round sealed now, if it has enough sessions."""
        self.end_round(0, What.CLOSE)

    @rule(role=ROLE)
    def abort(self, role: int) -> None:
        """Have the open round ended without a sum, whatever it holds."""
        self.end_round(role, What.ABORT)

    @rule()
    def exchange(self) -> None:
        """Let the servers tell each other."""
        self.runner.run(self.pair.exchange())

    def end_round(self, role: int, what: What) -> None:
        current = self.runner.run(self.pair.parties[role].ledger.current_round(self.pair.task.task_id))
        if current is not None:
            if what is What.ABORT:
                self.truth.given_up.add(current.round_id)
            done = self.steer(role, lambda control: control.end_round(what, current.number, ORDER))
            if done and what is What.ABORT:
                self.truth.acknowledged_aborts.add(current.round_id)

    def steer(self, role: int, act: Callable[[Control], Awaitable[None]]) -> bool:
        return self.runner.run(self.pair.steer(role, act))

    # Misfortune.

    @rule(role=ROLE)
    def crash(self, role: int) -> None:
        self.runner.run(self.pair.crash(role))

    @rule(role=ROLE, writes=st.integers(0, 4), after=st.booleans())
    def doom(self, role: int, writes: int, after: bool) -> None:
        """Let a server die at one of its next writes."""
        self.pair.fuses[role].light(writes, after=after)

    @rule(role=ROLE, calls=st.integers(0, 3), after=st.booleans())
    def lose_workers(self, role: int, calls: int, after: bool) -> None:
        """Let one of the next calls to a server's engine fail."""
        self.pair.outages[role].plan(calls, after=after)

    @rule(count=st.sampled_from([1, 1, 2]))
    def lose_requests(self, count: int) -> None:
        self.pair.line.lose_requests = count

    @rule(count=st.sampled_from([1, 1, 2]))
    def lose_responses(self, count: int) -> None:
        self.pair.line.lose_responses = count

    @rule()
    def hold_request(self) -> None:
        self.pair.line.hold_requests = 1

    @rule()
    def deliver_held(self) -> None:
        """Let a call arrive that server 0 has given up long ago."""
        while self.pair.line.held:
            self.runner.run(self.pair.deliver_held())

    @invariant()
    def everything_holds(self) -> None:
        self.runner.run(self.truth.check())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            for role in (0, 1):
                self.pair.fuses[role].writes = None
                self.pair.outages[role].calls = None
                self.resume(role)
                self.end_drain(role)
            self.pair.line.lose_requests = self.pair.line.lose_responses = self.pair.line.hold_requests = 0
            self.exchange()
            self.runner.run(self.pair.finish())
            self.deliver_held()
            self.exchange()
            self.runner.run(self.pair.finish())
            self.runner.run(self.truth.check_end())
        finally:
            self.runner.run(self.pair.stop())
            self.runner.close()
            shutil.rmtree(self.pair.folder)

    # What the rules are made of.

    def new_device(self, twist: str | None) -> Device:
        """Return a device whose power of two no other of the last rounds adds."""
        count = len(self.truth.devices)
        name = hashlib.sha256(f"device {count}".encode()).digest()[:16]
        device = Device(self.pair, name, power=count % 10, twist=twist)
        self.truth.devices.append(device)
        return device

    async def knock(self, device: Device) -> bool:
        """Ask to join; return whether it makes sense to ask again."""
        shut = self.pair.parties[0].control.drain is not None
        answer = await device.join()
        assert not shut or answer is None or answer.status_code == 202, "a session joined a server that is drained"
        if answer is None:
            return False  # it may be in, and its session used up when this round is over
        assert answer.status_code in {200, 202}, answer.text
        return answer.status_code == 202

    async def wait_for_round(self, device: Device) -> None:
        """Knock until somebody opens, and see the leader at work meanwhile."""
        for _ in range(8):
            if not await self.knock(device):
                return
            await self.lead_once()

    async def lead_once(self) -> None:
        """Let the leader do one thing; where it waits, turn the clock to the very moment that it waits for."""
        decision = await self.pair.step()
        if isinstance(decision, Wait):
            self.pair.clock.now = decision.until

    async def send(self, device: Device, role: int, what: str) -> None:
        """Send a message and see that the answer fits what this server holds."""
        before, sent = (role, what) in device.answers, (role, what) in device.sent
        record = await self.pair.parties[role].ledger.round(device.spec.digest)
        assert record is not None, "a device takes part in a round that one server does not know"
        held = await self.pair.parties[role].ledger.counts(record.round_id)
        seats = self.pair.server0.leader.seats.limit
        full = held.updates >= self.pair.task.cohort if what == UPDATE else held.keys >= seats
        answer = await device.put(role, what)
        if answer is None:
            return
        late = self.pair.clock.now > device.upload_until + (CLOCK_TOLERANCE if role == 1 else 0)
        # An upload that is here is acknowledged again, also after the ticket has expired.
        if not late:
            assert answer.status_code != 403, answer.text
        elif what != UPDATE or not sent:
            assert answer.status_code == 403, answer.text
        elif before:
            assert answer.status_code in {200, 410}, answer.text
        if before:
            assert answer.status_code in SETTLED, answer.text
            kept = record.model_version in self.pair.parties[role].models.versions()[-3:]
            assert answer.status_code == 200 or late or not kept, answer.text
        elif record.state is RoundState.OPEN and not late:
            missing = what == UPDATE and (role, KEYS) not in device.answers
            accepted = answer.status_code == 200 or (missing and answer.status_code == 404)
            assert accepted or (role == 0 and full and answer.status_code == 410), answer.text
        else:
            # The answer to what was stored may have been lost with the server.
            assert answer.status_code in {403, 410} or (answer.status_code == 200 and sent)
        self.check_rows(device)

    def check_rows(self, device: Device) -> None:
        """A device reads the rows of the version that its round names."""
        answers = [device.answers.get((role, KEYS)) for role in (0, 1)]
        if answers[0] is None or answers[1] is None or device.twist in (KEYS, WORDS) or device.session is None:
            return
        items, rows = device.session.read((answers[0], answers[1]))
        version = device.spec.model_version
        model = self.truth.models.get(version) or self.pair.parties[1].models.load(version)
        assert model.digest == device.spec.model_digest
        assert np.array_equal(rows, model.rows[items])


class ProvedRounds(Rounds):
    """The same with devices that prove how long their update is."""

    norm_bound = 2**12
