"""Failures that were found once, each by its name."""

import json

import numpy as np
import pytest
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.invariants import Invariants
from tests.simulation.pair import a_pair
from tests.simulation.round_states import last, results, self_reports, step_to

from secemb_party.ledger import RoundState
from secemb_party.operators import Order
from secemb_sdk.round.upload import survey
from secemb_server0.conductor import Abort, Open, RollBack
from secemb_shared.messages.spec import SURVEY

pytestmark = pytest.mark.asyncio


async def test_nothing_is_acknowledged_while_a_round_is_being_aborted() -> None:
    """The answer to abort is lost, and the update that was missing comes in the last second that tickets allow.

    Server 0 was still open then: it acknowledged, decided to seal after all, and was refused by server 1 for ever.
    """
    async with a_pair() as pair:
        await pair.step()
        whole, late = a_device(pair, 1), a_device(pair, 2)
        await whole.take_part()
        await late.join()
        for role, what in ((0, KEYS), (1, KEYS), (1, UPDATE)):
            await late.put(role, what)
        pair.clock.now = late.upload_until
        pair.line.lose_responses = 1
        assert await pair.step() is None
        answer = await late.put(0, UPDATE)
        assert answer is not None
        assert answer.status_code == 410
        await pair.finish()
        await Invariants(pair, [whole, late]).check_end()
        assert (await last(pair, 1)).state is RoundState.ABORTED


async def test_an_announcement_that_arrives_after_the_abort_does_not_open_the_round_again() -> None:
    """Server 1 had not heard of the round and had nothing to remember the abort by; the next round was refused."""
    async with a_pair() as pair:
        await pair.step()
        devices = [a_device(pair, number) for number in range(2)]
        for device in devices:
            await device.take_part()
        await pair.finish()
        pair.line.hold_requests = 1
        assert await pair.step() is None
        pair.line.lose_requests = pair.line.hold_requests = 0
        await pair.parties[0].ledger.request_rollback(
            pair.task.task_id, seen=1, source=0, now=pair.clock.now, order=Order("anna")
        )
        assert isinstance(await pair.step(), Abort)
        await pair.deliver_held()
        await Invariants(pair, devices).check_end()
        assert await pair.step() == RollBack(0)
        assert await pair.step() == Open(2)


async def test_the_figures_of_a_survey_are_the_same_when_a_crash_lets_them_be_noted_twice() -> None:
    """They are noted before the round moves on, and again after a crash between the two: readers go by the round."""
    async with a_pair(choose_kind=lambda _: SURVEY) as pair:
        await self_reports(pair, [survey(np.ones(items, np.float32)).tolist() for items in (3, 5)])
        assert len(await results(pair)) == 1
        await pair.step()
        for number in (3, 4):
            device = a_device(pair, number)
            await device.join()
            device.write_sum(survey(np.ones(number, np.float32)).tolist())
            await device.take_part()
        await step_to(pair, RoundState.SHARED)
        pair.fuses[0].light(0, after=True)
        assert await pair.step() is None
        await pair.finish()
        assert {one["round"]: one["mean_items"] for one in await results(pair)} == {0: 4.0, 1: 3.5}
        assert len({json.dumps(one, sort_keys=True) for one in await results(pair)}) == 2
