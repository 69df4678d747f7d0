"""Servers that die and calls that get lost while a round is sealed, shared and published."""

import pytest
from sqlalchemy import delete
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.pair import TICKET_KEY, Pair, a_pair
from tests.simulation.round_states import assert_published, filled, last, step_to

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.ledger.schema import rounds
from secemb_party.storage import read_all
from secemb_party.tickets import issue_ticket
from secemb_server0.conductor import Idle

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("writes", range(3))
async def test_server_1_dies_while_a_round_is_sealed(writes: int, after: bool) -> None:
    """Its writes: sealing, the list that it offers, the list that it seals."""
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, RoundState.SEALING)
        pair.fuses[1].light(writes, after=after)
        assert await pair.step() is None
        assert (await last(pair, 0)).state is RoundState.SEALING
        await pair.finish()
        await assert_published(pair, devices)


async def test_server_1_dies_between_prepare_and_commit() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, RoundState.SEALING)
        pair.fuses[1].light(1, after=True)
        assert await pair.step() is None
        assert (await last(pair, 1)).state is RoundState.SEALING
        assert await a_late_session(pair) == 410
        await pair.finish()
        await assert_published(pair, devices)


async def test_server_1_is_told_again_of_a_round_that_it_has_lost() -> None:
    """Its ledger was put back to an older copy. What server 1 was told once counts until something fails."""
    async with a_pair() as pair:
        await pair.step()
        device = a_device(pair, 0)
        await device.join()
        await device.put(0, KEYS)  # and is lost
        await pair.step()
        await pair.parties[1].ledger._database.write(lambda tx: tx.execute(delete(rounds)))
        pair.clock.now += pair.task.upload_seconds
        with pytest.raises(PeerRefusedError):
            await pair.step()
        await pair.finish()
        assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.ABORTED] * 2


async def a_late_session(pair: Pair) -> int:
    """Return how server 1 answers to the keys of a new session with a good ticket."""
    record, device = await last(pair, 1), a_device(pair, 9)
    device.ticket = issue_ticket(TICKET_KEY, record.round_id, device.name, int(pair.clock.now) + 60)
    device.begin(record.spec)
    answer = await device.put(1, KEYS)
    assert answer is not None
    return answer.status_code


async def test_server_0_dies_after_server_1_has_sealed() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, RoundState.SEALING)
        pair.fuses[0].light(0, after=False)
        assert await pair.step() is None
        assert (await last(pair, 1)).state is RoundState.SEALED
        assert (await last(pair, 0)).state is RoundState.SEALING
        await pair.finish()
        await assert_published(pair, devices)


@pytest.mark.parametrize("state", [RoundState.OPEN, RoundState.SEALING, RoundState.SHARED, RoundState.RECONSTRUCTED])
@pytest.mark.parametrize("what", ["request", "response"])
async def test_calls_that_get_lost_in_any_state_are_made_up_for(state: RoundState, what: str) -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, state)
        for _ in range(3):
            setattr(pair.line, f"lose_{what}s", 1)
            await pair.step()
        await pair.finish()
        await assert_published(pair, devices)


async def test_a_share_whose_answer_was_lost_is_given_again_byte_for_byte() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, RoundState.SHARED)
        pair.line.lose_responses = 1
        assert await pair.step() is None
        shared = await last(pair, 1)
        assert shared.state is RoundState.SHARED
        first = read_all(await pair.parties[1].share(shared.round_id))
        await pair.crash(1)
        assert read_all(await pair.parties[1].share(shared.round_id)) == first
        await pair.finish()
        assert read_all(await pair.parties[1].share(shared.round_id)) == first
        await assert_published(pair, devices)


async def test_a_lost_answer_to_publish_leaves_devices_on_the_old_version_until_it_is_repeated() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await step_to(pair, RoundState.RECONSTRUCTED)
        pair.line.let_pass, pair.line.lose_responses = (
            2,
            1,
        )  # server 1 has the model, and publishes it
        assert await pair.step() is None
        versions = [await pair.parties[role].ledger.published_version(pair.task.task_id) for role in (0, 1)]
        assert [one.version for one in versions if one is not None] == [0, 1]
        await pair.crash(0)
        await pair.finish()
        await assert_published(pair, devices)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_server_may_die_at_every_single_write_of_a_round(role: int, after: bool) -> None:
    """So many writes, so many deaths: each kills the server one write further on."""
    async with a_pair() as pair:
        for writes in range(12):
            devices = [a_device(pair, number % 10, name=bytes([writes, number]) * 8) for number in range(2)]
            while not isinstance(await pair.step(), Idle):
                pass
            pair.fuses[role].light(writes, after=after)
            for device in devices:
                while device.session is None:
                    await pair.step()
                    await device.join()
                for what in (KEYS, UPDATE):
                    for to in (0, 1):
                        while (to, what) not in device.answers:
                            await device.put(to, what)
            pair.clock.now += pair.task.join_seconds
            for _ in range(12):
                await pair.step()
                if (await last(pair, 0)).ended:
                    break
            await pair.finish()
            record = await last(pair, 1)
            assert record.state is RoundState.PUBLISHED
            assert record.sealed_sessions == tuple(sorted(device.name for device in devices))
            for each in (0, 1):  # the operator is told of each step once, whatever was cut off
                assert await told_states(pair, each, record.number) == list(RoundState)[1:6]


async def told_states(pair: Pair, role: int, number: int) -> list[str]:
    """Return the states that a server has told its operator of, for one round."""
    told = await pair.parties[role].ledger.recent_events("round")
    return [str(event.data["state"]) for event in reversed(told) if event.data["round"] == number]
