"""The invariants can fail: servers with a fault planted in them are found out."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.devices.scripted import UPDATE, Device, a_device
from tests.simulation.invariants import BrokenError, Invariants
from tests.simulation.machine import Rounds
from tests.simulation.pair import Pair, a_pair

from secemb_party.evaluation import Evaluation, KeysMessage, SessionBodies
from secemb_party.ledger import Ledger, Stored
from secemb_party.peer_messages import Digests
from secemb_party.service import Party
from secemb_party.storage.publication import Publication
from secemb_server0.peer import HttpPeer
from secemb_server1.responder import Responder

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def skip_the_comparison(patch: Patch) -> None:
    """Server 1 calls all sessions equal that both have."""
    honest = Responder.prepare

    async def prepare(self: Responder, round_id: bytes, offered: Digests) -> tuple[list[bytes], list[bytes]]:
        held = await self._ledger.session_summaries(round_id)
        equal = {one.session_id: (one.keys_public_digest or b"", one.update_public_digest or b"") for one in held}
        return await honest(self, round_id, {name: equal.get(name, offered[name]) for name in offered})

    patch.setattr(Responder, "prepare", prepare)


def forget_a_session(patch: Patch) -> None:
    """Server 0 leaves the last session of each batch out of its sum."""
    honest = Evaluation.add

    def add(self: Evaluation, sessions: list[SessionBodies], share: Any) -> list[bytes]:
        honest(self, sessions[:-1] if self.party == 0 else sessions, share)
        return [b""] * len(sessions)

    patch.setattr(Evaluation, "add", add)


def forget_a_session_on_both_sides(patch: Patch) -> None:
    honest = Evaluation.add
    patch.setattr(Evaluation, "add", lambda self, sessions, share: [*honest(self, sessions[:-1], share), b""])


def count_a_session_twice(patch: Patch) -> None:
    honest = Evaluation.add
    patch.setattr(Evaluation, "add", lambda self, sessions, share: honest(self, [*sessions, sessions[0]], share)[1:])


def acknowledge_without_storing(patch: Patch) -> None:
    """Server 1 says that an update is durable and keeps nothing."""
    honest = Ledger.put_update

    async def put_update(self: Ledger, upload: Any, now: float, **more: Any) -> Stored:
        if len(upload.body) == _SMALLER and upload.session_id == a_name(2):
            return Stored.STORED
        return await honest(self, upload, now, **more)

    patch.setattr(Ledger, "put_update", put_update)


def publish_on_one_side(patch: Patch) -> None:
    """Server 0 does not wait for server 1 before it shows a version."""

    async def publish(self: HttpPeer, round_id: bytes, result: Publication | None) -> bytes:
        assert result is not None
        return result.model.digest

    patch.setattr(HttpPeer, "publish", publish)


def abort_on_one_side(patch: Patch) -> None:
    async def abort(self: HttpPeer, round_id: bytes, reason: str) -> None:
        return

    patch.setattr(HttpPeer, "abort", abort)


def share_anew(patch: Patch) -> None:
    """A server's answer depends on when it is asked."""
    calls = 0
    honest = Evaluation.accept

    def accept(self: Evaluation, batch: list[KeysMessage]) -> list[tuple[bytes, bytes]]:
        nonlocal calls
        calls += 1
        return [(one[:-1] + bytes([calls % 256]), alike) for one, alike in honest(self, batch)]

    patch.setattr(Evaluation, "accept", accept)


def a_name(number: int) -> bytes:
    return a_device(None, number).name  # type: ignore[arg-type]


async def everybody(pair: Pair) -> list[Device]:
    devices = [a_device(pair, number) for number in range(3)]
    for device in devices:
        await device.take_part()
    return devices


async def one_with_two_public_parts(pair: Pair) -> list[Device]:
    devices = [a_device(pair, 0), a_device(pair, 1), a_device(pair, 2, twist=UPDATE)]
    for device in devices:
        await device.take_part()
    return devices


async def a_single_one(pair: Pair) -> list[Device]:
    device = a_device(pair, 0)
    await device.take_part()
    await a_device(pair, 1).fall_silent()  # and is lost, so that the round is aborted
    return [device]


_SMALLER = 24 + 12 * 2 * 4  # bytes of an update to server 1: its dense share is a seed

PLANTED: list[tuple[Plant, Callable[[Pair], Any], str]] = [
    (skip_the_comparison, one_with_two_public_parts, "not complete on both sides"),
    (forget_a_session, everybody, "discarded although its sum is possible"),
    (forget_a_session_on_both_sides, everybody, "something else than the sum"),
    (count_a_session_twice, everybody, "something else than the sum"),
    (acknowledge_without_storing, everybody, "an acknowledged session was left out"),
    (publish_on_one_side, everybody, "server 0 shows version 1, server 1 0"),
    (abort_on_one_side, a_single_one, "ended in two ways"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("plant", "devices", "message"), PLANTED, ids=[one[0].__name__ for one in PLANTED])
async def test_a_planted_fault_is_found_out(
    plant: Plant, devices: Callable[[Pair], Any], message: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    async with a_pair() as pair:
        await pair.step()
        truth = Invariants(pair, await devices(pair))
        await pair.finish()
        with pytest.raises(BrokenError, match=message):
            await truth.check_end()


@pytest.mark.asyncio
async def test_an_answer_that_changes_is_found_out(monkeypatch: Patch) -> None:
    share_anew(monkeypatch)
    async with a_pair() as pair:
        await pair.step()
        device = await a_single_one(pair)
        with pytest.raises(AssertionError, match="answered the same keys in two ways"):
            await device[0].put(0, "keys")


@pytest.mark.asyncio
async def test_a_sum_below_the_minimum_is_found_out() -> None:
    """Two servers that agree to open a sum over one session: the list is stored as it would be then."""
    async with a_pair() as pair:
        await pair.step()
        devices = await a_single_one(pair)
        for role in (0, 1):
            await seal_alone(pair.parties[role], devices[0])
        with pytest.raises(BrokenError, match="a sum over 1 sessions was opened"):
            await Invariants(pair, devices).check()


async def seal_alone(party: Party, device: Device) -> None:
    from secemb_party.ledger import RoundState

    round_id = device.spec.digest
    await party.ledger.advance(round_id, RoundState.OPEN, RoundState.SEALING, 0.0)
    await party.ledger.advance(
        round_id, RoundState.SEALING, RoundState.SEALED, 0.0, sealed_sessions=[device.name], list_digest=bytes(32)
    )


def test_the_machine_finds_a_planted_fault_by_itself(monkeypatch: Patch) -> None:
    forget_a_session(monkeypatch)
    found = settings(
        max_examples=300,
        stateful_step_count=30,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(BrokenError, match="discarded although its sum is possible"):
        run_state_machine_as_test(Rounds, settings=found)
