"""Faults in how operators steer a task, planted: the machine and the invariants find each."""

import pytest
from tests.simulation.invariants import BrokenError, Invariants
from tests.simulation.machine import Rounds
from tests.simulation.pair import a_pair
from tests.simulation.round_states import filled, last
from tests.simulation.steering import end

from secemb_party.control import Control
from secemb_party.ledger import Ledger, What
from secemb_server1.responder import Responder


def steered_machine() -> Rounds:
    """Return a machine whose round of two devices is about to be sealed."""
    machine = Rounds()
    machine.start(count=2)
    return machine


def go_on(machine: Rounds) -> None:
    for _ in range(8):
        machine.lead_on(steps=1)
        machine.everything_holds()


def test_the_machine_finds_a_server_1_that_takes_part_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Responder, "check_pause", lambda _: None)
    machine = steered_machine()
    machine.pause(role=1)
    machine.everything_holds()
    with pytest.raises(BrokenError, match="a round began at server 1 while it was paused"):
        go_on(machine)
    machine.truth.paused.clear()
    machine.teardown()


def test_the_machine_finds_a_server_0_that_forgets_a_pause_in_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(control: Control) -> None:
        await control._ledger.lift(control._task.task_id, What.PAUSE, None, 0.0)

    machine = steered_machine()
    machine.pause(role=0)
    monkeypatch.setattr(Control, "start", forget)
    machine.crash(role=0)
    with pytest.raises(BrokenError, match="a round began at server 0 while it was paused"):
        go_on(machine)
    machine.truth.paused.clear()
    machine.teardown()


def test_the_machine_finds_an_abort_that_is_acknowledged_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object, **__: object) -> None:
        return

    monkeypatch.setattr(Ledger, "instruct", forget)
    machine = steered_machine()
    machine.abort(role=0)
    with pytest.raises(BrokenError, match="a round was sealed after an operator had aborted it"):
        go_on(machine)
    machine.truth.acknowledged_aborts.clear()
    machine.teardown()


def test_the_machine_finds_a_drain_that_lets_devices_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Control, "draining", property(lambda _: False))
    machine = steered_machine()
    machine.drain(role=0)
    with pytest.raises(AssertionError, match="a session joined a server that is drained"):
        machine.join(twist=None, wild=False)
    machine.teardown()


@pytest.mark.asyncio
async def test_an_abort_on_one_side_is_found_out() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await pair.server0.leader._completion.abort_here(await last(pair, 0), "alone")
        with pytest.raises(BrokenError, match="ended in two ways"):
            await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()


@pytest.mark.asyncio
async def test_an_abort_that_no_operator_wanted_is_found_out() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 0, What.ABORT)
        await pair.step()
        with pytest.raises(BrokenError, match="aborted with enough acknowledged sessions"):
            await Invariants(pair, devices).check()
