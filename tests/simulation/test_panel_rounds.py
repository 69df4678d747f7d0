"""Evaluations by a trusted panel: nobody else moves them, and a model that got worse twice is rolled back."""

import numpy as np
import pytest
from tests.devices.scripted import Device, a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import last, results

from secemb_party.ledger import RoundState
from secemb_server0.conductor import PANEL_PATIENCE, Idle, Open
from secemb_server0.panel import BY, Panel
from secemb_shared.messages.measures import EvaluationSums
from secemb_shared.messages.spec import EVALUATE, TRAIN

pytestmark = pytest.mark.asyncio

TOKENS = ["a", "b", "c"]  # the last is not in the panel
NAMES = {"name of a", "name of b"}


def a_panel(*, roll_back: bool = True) -> Panel:
    return Panel(lambda: NAMES, every=2, margin=0.05, roll_back=roll_back)


async def enrolled(pair: Pair) -> Pair:
    for token in TOKENS:
        await pair.enrol(token)
    return pair


def member(pair: Pair, number: int, place: int) -> Device:
    return a_device(pair, place, name=bytes([number, place]) * 8, token=TOKENS[place])


async def open_round(pair: Pair) -> int:
    """Let the next round open; return its number."""
    for _ in range(10):
        if isinstance(await pair.step(), Open | Idle):
            break
    return (await last(pair, 0)).number


async def train(pair: Pair) -> None:
    number = await open_round(pair)
    for place in range(2):
        await member(pair, number, place).take_part()
    await pair.finish()
    assert (await last(pair, 1)).kind == TRAIN


async def join_panel(pair: Pair, rmse: float) -> None:
    """Let the panel measure the model in the round that is open."""
    number = (await last(pair, 0)).number
    for place in range(2):
        device = member(pair, number, place)
        await device.join()
        device.write_sum(EvaluationSums(predictions=4.0, squared=4 * rmse**2, rankings=1.0).numbers().tolist())
        await device.take_part()


async def measured(pair: Pair, rmse: float) -> None:
    await open_round(pair)
    await join_panel(pair, rmse)
    await pair.finish()
    assert ((await last(pair, 1)).kind, (await last(pair, 1)).state) == (EVALUATE, RoundState.PUBLISHED)


async def published(pair: Pair, role: int) -> int:
    found = await pair.parties[role].ledger.published_version(pair.task.task_id)
    assert found is not None
    return found.version


def figure(pair: Pair, name: str) -> float:
    return next(value for found, _, value in pair.parties[0].metrics.figures() if found == name)


async def test_a_model_that_the_panel_finds_worse_twice_is_rolled_back_to_the_version_it_liked_best() -> None:
    async with a_pair(open_enrolment=False, panel=a_panel(), capacity=24, keep_versions=1) as pair:
        await enrolled(pair)
        for rmse in (1.0, 1.2):
            await train(pair)
            await measured(pair, rmse)
        assert figure(pair, "secemb_panel_worse") == 1
        best = pair.parties[0].models.load(1)  # kept, although one version is to be kept
        await train(pair)
        await measured(pair, 1.2)
        assert [await published(pair, role) for role in (0, 1)] == [4, 4]
        for role in (0, 1):
            assert np.array_equal(pair.parties[role].models.load(4).rows, best.rows)
        actions = await pair.parties[0].ledger.actions()
        assert [(one.by, one.what) for one in actions if one.what == "rollback"] == [(BY, "rollback")]
        # What was undone no longer counts: the same figure again is not the third in a row.
        await train(pair)
        await measured(pair, 1.2)
        assert figure(pair, "secemb_panel_worse") == 1
        assert await published(pair, 0) == 5
        await train(pair)
        await measured(pair, 1.0)
        assert figure(pair, "secemb_panel_worse") == 0


async def test_without_the_operators_consent_it_is_only_shown() -> None:
    async with a_pair(open_enrolment=False, panel=a_panel(roll_back=False), capacity=24) as pair:
        await enrolled(pair)
        for rmse in (1.0, 1.2, 1.2, 1.3):
            await train(pair)
            await measured(pair, rmse)
        assert figure(pair, "secemb_panel_worse") == 3
        assert await published(pair, 0) == 4


async def test_nobody_else_joins_an_evaluation_of_the_panel_and_the_fleets_figures_leave_it_out() -> None:
    async with a_pair(open_enrolment=False, panel=a_panel(), capacity=24) as pair:
        await enrolled(pair)
        await train(pair)
        number = await open_round(pair)
        stranger = member(pair, number, 2)
        answer = await stranger.join()
        assert answer is not None
        assert answer.status_code == 202
        pair.panel = None  # a server that is started without the panel does not let strangers in either
        await pair.crash(0)
        assert isinstance(await pair.step(), Idle)
        for place in range(3):
            answer = await member(pair, number, place).join()
            assert answer is not None
            assert answer.status_code == 202
        pair.panel = a_panel()
        await pair.crash(0)
        await pair.step()
        await join_panel(pair, 1.0)
        await pair.finish()
        assert await results(pair) == []
        events = await pair.parties[0].ledger.recent_events("panel")
        assert [(one.data["round"], one.data["version"], one.data["rmse"]) for one in events] == [(1, 1, 1.0)]
        await open_round(pair)
        answer = await member(pair, 2, 2).join()  # a training round is open to all
        assert answer is not None
        assert answer.status_code == 200


async def test_a_panel_that_does_not_come_keeps_the_others_waiting_for_minutes_only() -> None:
    async with a_pair(open_enrolment=False, panel=a_panel(), capacity=24) as pair:
        await enrolled(pair)
        await train(pair)
        number = await open_round(pair)
        pair.clock.now += PANEL_PATIENCE - 1
        assert isinstance(await pair.step(), Idle)
        pair.clock.now += 2
        await pair.step()
        for role in (0, 1):
            record = await last(pair, role)
            assert (record.number, record.state) == (number, RoundState.ABORTED)
        await train(pair)


@pytest.mark.parametrize("after", [False, True])
async def test_server_0_may_die_at_every_single_write_before_an_automatic_rollback(after: bool) -> None:
    async with a_pair(open_enrolment=False, panel=a_panel(), capacity=24) as pair:
        await enrolled(pair)
        for writes in range(12):
            for rmse in (1.0, 1.2):
                await train(pair)
                await measured(pair, rmse)
            await train(pair)
            await open_round(pair)
            await join_panel(pair, 1.2)
            pair.clock.now += pair.task.join_seconds
            pair.fuses[0].light(writes, after=after)
            for _ in range(8):
                await pair.step()
            await pair.finish()
            assert [await published(pair, role) for role in (0, 1)] == [4 * (writes + 1)] * 2
            assert len(await pair.parties[0].ledger.rollbacks(pair.task.task_id)) == writes + 1
            assert pair.line.broken == []
