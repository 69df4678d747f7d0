"""The privacy budget is a person's: it carries over to a successor unless the operators begin a fresh one."""

from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.pair import SUCCEEDED, Pair, a_pair
from tests.simulation.test_succession import agree, going_on, run_rounds, switch

from secemb_party.accountant import Terms, epsilon, epsilon_known, epsilon_of_all
from secemb_party.succession.errors import SuccessionRefusedError
from secemb_server0.conductor import Finished
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.succession import CONTINUED, FRESH

TERMS = Terms(multiplier=3.0, delta=1e-5)
NOISE = Privacy(unit="user", delta="0.00001", train=BudgetLine(clip=256, multiplier="3", epsilon="4"))
RING: dict[str, Any] = {"fraction_bits": 8, "bound": 2**10}


def test_rounds_of_one_kind_cost_the_same_however_they_are_split_over_tasks() -> None:
    for rate in (None, 0.1):
        terms = replace(TERMS, sampling_rate=rate)
        assert epsilon_of_all(((terms, 3), (terms, 4))) == pytest.approx(epsilon(terms, 7), rel=1e-3)
        assert epsilon_of_all(((terms, 3), (terms, 0))) == epsilon(terms, 3)
    assert epsilon_of_all(((TERMS, 0),)) == 0


def test_rounds_with_other_noise_add_up() -> None:
    less = replace(TERMS, multiplier=6.0)  # four of these cost what one of the others does
    assert epsilon_of_all(((TERMS, 3), (less, 4))) == pytest.approx(epsilon(TERMS, 4), rel=1e-6)
    sampled = replace(TERMS, sampling_rate=0.1)
    both = epsilon_of_all(((TERMS, 3), (sampled, 4)))
    assert epsilon(TERMS, 3) < both < epsilon_known(TERMS, 7)
    assert epsilon_of_all(((replace(TERMS, delta=1e-3), 2), (TERMS, 2))) == pytest.approx(epsilon(TERMS, 4))


async def spent(pair: Pair, role: int) -> tuple[float, int]:
    (line,) = await pair.parties[role].spending.standing()
    return line.epsilon, line.remaining


@pytest.mark.asyncio
@pytest.mark.parametrize("budget", [CONTINUED, FRESH])
async def test_both_servers_count_what_earlier_tasks_have_spent(budget: str) -> None:
    async with a_pair(**SUCCEEDED, **RING, privacy=NOISE) as pair:
        await run_rounds(pair, 2)
        before = [await spent(pair, role) for role in (0, 1)]
        await agree(pair, replace(pair.task, items=30, predecessor=pair.task.task_id.hex()), budget=budget)
        await switch(pair)
        async with going_on(pair) as after:
            for role in (0, 1):
                now = await spent(after, role)
                assert now[0] == pytest.approx(before[role][0] if budget == CONTINUED else 0.0)
                assert now[1] == before[role][1] + (0 if budget == CONTINUED else 2)
            await agree(after, replace(after.task, predecessor=after.task.task_id.hex()), budget=CONTINUED)
            await switch(after)
            async with going_on(after) as third:
                assert (await spent(third, 1))[0] == pytest.approx(before[1][0] if budget == CONTINUED else 0.0)


@pytest.mark.asyncio
async def test_a_successor_of_a_task_that_has_spent_its_budget_opens_no_round() -> None:
    small = replace(NOISE, train=replace(NOISE.train, epsilon="2"))
    async with a_pair(**SUCCEEDED, **RING, privacy=small) as pair:
        _, remaining = await spent(pair, 0)
        await run_rounds(pair, remaining)
        await agree(pair, replace(pair.task, items=30, predecessor=pair.task.task_id.hex()))
        await switch(pair)
        async with going_on(pair) as after:
            assert isinstance(await after.step(), Finished)


@pytest.mark.asyncio
async def test_a_budget_continues_only_where_guarantees_add_up() -> None:
    async with a_pair(**SUCCEEDED, **RING, privacy=NOISE) as pair:
        task = replace(pair.task, predecessor=pair.task.task_id.hex())
        for other in (None, replace(NOISE, unit="record")):
            with pytest.raises(SuccessionRefusedError, match="cannot continue"):
                await agree(pair, replace(task, privacy=other))
            await agree(pair, replace(task, privacy=other), budget=FRESH)
