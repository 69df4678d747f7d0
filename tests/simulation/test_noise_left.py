"""What a server says is left of a budget: rounds that can still come, and what they cost against whom."""

import re
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair, a_task
from tests.simulation.round_states import last
from tests.simulation.test_noisy_rounds import PRIVACY, TRAINING, run_round

from secemb_party.accountant import Terms, epsilon
from secemb_party.budget import Spent, lines_of
from secemb_party.ledger import RoundState
from secemb_party.metric_labels import short_id
from secemb_server0.conductor import Finished
from secemb_shared.messages.privacy import BudgetLine
from secemb_shared.messages.spec import EVALUATE, TRAIN

pytestmark = pytest.mark.asyncio

PLENTY = replace(PRIVACY, train=replace(TRAINING, epsilon="100"))
TERMS = Terms(multiplier=3.0, delta=1e-5)
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"


async def standing(pair: Pair, kind: str = TRAIN) -> Spent:
    """Return where a line stands, on which both servers agree."""
    found = [{one.kind: one for one in await pair.parties[role].spending.standing()}[kind] for role in (0, 1)]
    assert found[0] == found[1]
    return found[0]


async def let_one_pass(pair: Pair) -> None:
    """Let a round end whose only device is lost."""
    await pair.step()
    await a_device(pair, 0, name=secrets.token_bytes(16)).fall_silent()
    pair.clock.now += pair.task.upload_seconds + 1
    await pair.finish()
    assert (await last(pair, 0)).state is RoundState.ABORTED


async def test_a_round_that_is_aborted_costs_nothing_and_comes_again() -> None:
    async with a_pair(privacy=PLENTY, rounds=2) as pair:
        for _ in range(3):
            found = await standing(pair)
            assert (found.shares, found.remaining, found.exhausted) == (0, 2, False)
            assert found.projected == epsilon(TERMS, 2)
            await let_one_pass(pair)
        await run_round(pair)
        assert (await standing(pair)).remaining == 1
        await run_round(pair)
        found = await standing(pair)
        assert (found.shares, found.remaining, found.exhausted) == (2, 0, False)
        assert found.projected == found.epsilon == epsilon(TERMS, 2)
        assert await pair.step() == Finished()


async def test_a_round_that_runs_may_still_cost() -> None:
    async with a_pair(privacy=PLENTY, rounds=2) as pair:
        await run_round(pair)
        await pair.step()  # the second one is open: it is the last, and is still to come until its share is made
        assert (await standing(pair)).remaining == 1
        await a_device(pair, 0, name=secrets.token_bytes(16)).fall_silent()  # and is lost
        pair.clock.now += pair.task.upload_seconds + 1
        await pair.finish()  # it is aborted
        assert (await standing(pair)).remaining == 1
        await run_round(pair)
        assert (await standing(pair)).remaining == 0


async def test_rounds_of_other_kinds_are_limited_by_their_budget_until_training_is_done() -> None:
    line = BudgetLine(clip=2**16, multiplier="3", epsilon="4")
    privacy = replace(PLENTY, evaluate=line)
    room = lines_of(a_task(privacy=privacy, cohort=2, rounds=1))[EVALUATE].rounds()
    assert room > 2
    kinds = [EVALUATE, TRAIN, EVALUATE, TRAIN]
    async with a_pair(privacy=privacy, choose_kind=kinds.__getitem__, cohort=2, rounds=1) as pair:
        left: list[list[int]] = []
        for _ in kinds[:3]:
            await run_round(pair)
            left.append([(await standing(pair, kind)).remaining for kind in (TRAIN, EVALUATE)])
        assert left == [[1, room - 1], [0, 1], [0, 0]]  # one evaluation may follow the last training round
        assert await pair.step() == Finished()


async def test_with_a_rate_both_costs_are_told_and_without_one_they_are_the_same() -> None:
    for rate in ("", "0.5"):
        async with a_pair(privacy=replace(PLENTY, sampling_rate=rate), rounds=4) as pair:
            await run_round(pair)
            found = await standing(pair)
            assert found.epsilon_known == epsilon(TERMS, 1)
            assert found.projected_known == epsilon(TERMS, 4)
            assert (found.epsilon < found.epsilon_known, found.projected < found.projected_known) == (bool(rate),) * 2
            assert rate or (found.epsilon, found.projected) == (found.epsilon_known, found.projected_known)
            for role in (0, 1):
                shown, short = pair.parties[role].metrics.render().decode(), short_id(pair.task.task_id)
                assert f'secemb_privacy_epsilon_known{{kind="train",task="{short}"}} {found.epsilon_known}' in shown


def alert(pair: Pair, role: int) -> bool:
    """Tell whether SecEmbPrivacyNearlySpent fires: for one kind of round its expression is one of Python too."""
    (rule,) = re.findall(r"alert: SecEmbPrivacyNearlySpent\n(?: +#.*\n)* +expr: (.+)\n", RULES.read_text())
    shown = {
        name: value
        for name, labels, value in pair.parties[role].metrics.figures()
        if name.startswith("secemb_privacy") and labels["kind"] == TRAIN
    }
    return bool(eval(rule.replace('{kind="train"}', ""), {}, shown))


@pytest.mark.parametrize("role", [0, 1])
async def test_an_alert_tells_that_the_budget_ends_before_the_task(role: int) -> None:
    async with a_pair(privacy=PLENTY, rounds=2) as pair:  # the task ends first
        for _ in range(2):
            assert not alert(pair, role)
            await run_round(pair)
        assert await pair.step() == Finished()
        assert not alert(pair, role)
    async with a_pair(privacy=PRIVACY) as pair:
        left = (await standing(pair)).remaining
        assert left < 10
        assert alert(pair, role)
        for _ in range(left):
            await run_round(pair)
        assert await pair.step() == Finished()
        assert alert(pair, role)
    async with a_pair(privacy=PRIVACY, rounds=left) as pair:  # both end at the same time
        assert not alert(pair, role)
