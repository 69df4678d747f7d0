"""An engine that fails at any call: a request is refused and can be repeated, and rounds end with exact sums."""

import pytest
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.invariants import Invariants
from tests.simulation.pair import a_pair
from tests.simulation.round_states import last

from secemb_party.ledger import RoundState

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_device_that_is_refused_repeats_its_message_and_counts_once(role: int, after: bool) -> None:
    async with a_pair() as pair:
        truth = Invariants(pair)
        await pair.step()
        for number in range(2):
            device = a_device(pair, number)
            truth.devices.append(device)
            await device.join()
            for what in (KEYS, UPDATE):
                for to in (0, 1):
                    pair.outages[role].plan(0, after=after)
                    while await device.put(to, what) is None:
                        pass
        await pair.finish()
        await truth.check()
        await truth.check_end()
        assert pair.outages[role].failed >= 2
        assert (await last(pair, 0)).state is RoundState.PUBLISHED


@pytest.mark.parametrize("norm_bound", [0, 2**12])
@pytest.mark.parametrize("role", [0, 1])
async def test_a_round_ends_exactly_wherever_the_engine_fails_after_its_deadline(role: int, norm_bound: int) -> None:
    async with a_pair(norm_bound=norm_bound) as pair:
        truth = Invariants(pair)
        for fails_at in range(3):
            for after in (False, True):
                await pair.step()
                for number in range(2):
                    device = a_device(pair, number, name=bytes([fails_at, after, number]) + bytes(13))
                    truth.devices.append(device)
                    await device.take_part()
                pair.outages[role].plan(fails_at, after=after)
                await pair.finish(keep_outages=True)
                pair.outages[role].calls = None  # fewer calls than that were needed
                assert (await last(pair, 0)).state is RoundState.PUBLISHED
                await truth.check()
        assert pair.outages[role].failed >= 2
        await truth.check_end()
