"""An operator ends a round without a sum: it holds on both servers, at any moment and through crashes."""

import pytest
from tests.devices.scripted import KEYS, a_device
from tests.simulation.invariants import Invariants
from tests.simulation.pair import a_pair
from tests.simulation.round_states import filled, last
from tests.simulation.steering import end, refused, rounds

from secemb_party.ledger import RoundRecord, RoundState, What
from secemb_server0.conductor import Open


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_an_aborted_round_ends_on_both_servers_for_the_operators_reason(role: int) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 3)
        truth = Invariants(pair, devices, given_up={devices[0].spec.digest})
        await end(pair, role, What.ABORT)
        await pair.exchange()
        await pair.step()
        await truth.check_end()
        why = f"by the operator of server {role}: the database moves"
        for one in (0, 1):
            assert await rounds(pair, one) == [(0, RoundState.ABORTED, why)]
            late = await devices[0].put(one, KEYS, b"x" * len(devices[0].body(one, KEYS)))
            assert late is not None
            assert late.status_code in {400, 409, 410}
        assert await pair.step() == Open(1)
        recorded = await pair.parties[role].ledger.actions()
        assert [(one.what, one.by, one.reason, one.data) for one in recorded] == [
            ("abort", "admin", "the database moves", {"round": 0})
        ]
        assert await pair.parties[1 - role].ledger.actions() == []
        assert "is not the current round" in await refused(pair, role, What.ABORT)


@pytest.mark.asyncio
@pytest.mark.parametrize("at", [RoundState.OPEN, RoundState.SEALING])
async def test_an_abort_at_server_1_reaches_a_server_0_that_has_gone_on(at: RoundState) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        pair.clock.now += pair.task.join_seconds
        if at is RoundState.SEALING:
            await pair.step()
        assert (await last(pair, 0)).state is at
        await end(pair, 1, What.ABORT)
        await pair.finish()  # without an exchange: the answer to the next call says so
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await last(pair, 0)).reason == "by the operator of server 1: the database moves"


@pytest.mark.asyncio
@pytest.mark.parametrize("complete", [2, 1])  # enough for a seal, or too few
async def test_an_abort_that_comes_between_the_leaders_look_and_the_seal_still_counts(
    complete: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, complete)
        await a_device(pair, 5).fall_silent()  # and is lost
        completion = pair.server0.leader._completion
        honest = completion.close

        async def close(record: RoundRecord) -> RoundRecord:
            await end(pair, 0, What.ABORT)
            return await honest(record)

        monkeypatch.setattr(completion, "close", close)
        pair.clock.now += pair.task.upload_seconds
        await pair.finish()
        aborted = {devices[0].spec.digest}
        await Invariants(pair, devices, given_up=aborted, acknowledged_aborts=aborted).check_end()
        why = "by the operator of server 0: the database moves"
        assert await rounds(pair, 0) == await rounds(pair, 1) == [(0, RoundState.ABORTED, why)]


@pytest.mark.asyncio
@pytest.mark.parametrize("crashing", [0, 1])
@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("after", [False, True])
async def test_an_abort_that_is_acknowledged_survives_a_crash_at_any_write(
    crashing: int, writes: int, after: bool
) -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 0, What.ABORT)
        pair.fuses[crashing].light(writes, after=after)
        for _ in range(4):
            await pair.step()
        await pair.finish()
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await rounds(pair, 0))[0] == (
            0,
            RoundState.ABORTED,
            "by the operator of server 0: the database moves",
        )


@pytest.mark.asyncio
async def test_a_round_that_both_would_end_ends_for_the_reason_of_the_first() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, 2)
        await end(pair, 1, What.ABORT)
        await end(pair, 0, What.ABORT)
        await pair.step()
        await Invariants(pair, devices, given_up={devices[0].spec.digest}).check_end()
        assert (await last(pair, 0)).reason == "by the operator of server 1: the database moves"
        assert await pair.step() == Open(1)
