"""What each server's page says about the privacy of its task: what is spent, what is left, and what it promises."""

import math

import pytest
from tests.simulation.test_noisy_rounds import PRIVACY, TRAINING
from tests.unit.operator_desk import Desk, a_desk
from tests.unit.test_ui_peer import read

from secemb_party.accountant import Terms, epsilon, solve_multiplier
from secemb_party.budget import Spent
from secemb_party.errors import AccountantMissingError
from secemb_party.ui.views import privacy
from secemb_shared.messages.privacy import BudgetLine, Privacy

pytestmark = pytest.mark.asyncio

SMALL = Privacy(
    unit="record",
    delta="0.00001",
    train=BudgetLine(clip=TRAINING.clip, multiplier="3", epsilon="0.9"),  # one round, and no second
    evaluate=BudgetLine(clip=2**16, multiplier="4", epsilon="1"),
    sampling_rate="0.5",
)


async def training(desk: Desk, role: int) -> Spent:
    return (await desk.pair.parties[role].spending.standing())[0]


@pytest.mark.parametrize("role", [0, 1])
async def test_the_page_shows_what_is_spent_projected_and_left(role: int) -> None:
    async with a_desk(privacy=PRIVACY) as desk:
        spent, text = await training(desk, role), await read(desk, role, "/ui/privacy")
        assert spent.remaining > 0
        assert f"Spent ε {spent.epsilon:.3f}" in text
        assert f"Budget ε {spent.budget:.3f}" in text
        assert f"After all rounds ε {spent.projected:.3f}" in text
        assert f"Rounds left {spent.remaining} after 1" in text
        assert "clipped to a norm of 256" in text
        assert "makes no assumption about who takes part" in text
        assert "knows who took part" not in text
        assert f"1 {spent.epsilon:.4f} {spent.budget:.4f} here" in text  # a line of the table that the chart is made of
        assert "Surveys" not in text


async def test_the_page_says_when_a_budget_is_spent_and_what_is_counted_on() -> None:
    async with a_desk(privacy=SMALL) as desk:
        assert (await training(desk, 1)).exhausted
        text = await read(desk, 1, "/ui/privacy")
        assert "The task has ended, and no more rounds will open." in text
        assert "Rounds left 0 after 1" in text
        assert "one rating" in text
        assert "with probability 0.5, and holds against an attacker who does not know which devices did" in text
        spent = await training(desk, 1)
        assert f"Spent, if the attacker knows who took part ε {spent.epsilon_known:.3f}" in text
        assert (
            f"1 {spent.epsilon:.4f} {spent.budget:.4f} {spent.epsilon_known:.4f} here" in text
        )  # in the chart as well
        assert "Evaluations Spent ε 0.000" in text


@pytest.mark.parametrize("role", [0, 1])
async def test_the_live_page_promises_no_round_that_the_budget_does_not_allow(role: int) -> None:
    async with a_desk(privacy=SMALL) as desk:
        text = await read(desk, role, "/ui")
        assert "The privacy budget is spent, so no more rounds will open." in text
        assert "opens automatically" not in text
        assert "Server 0 opens rounds" not in text
    async with a_desk(privacy=PRIVACY) as desk:
        assert "budget is spent" not in await read(desk, role, "/ui")


async def test_a_task_without_noise_says_so() -> None:
    async with a_desk() as desk:
        assert "Its sums are exact" in await read(desk, 0, "/ui/privacy")
        assert "privacy budget" not in await read(desk, 1, "/ui/peer")


@pytest.mark.parametrize("role", [0, 1])
async def test_without_a_budget_the_page_says_what_protects_a_device_and_what_this_server_sees(role: int) -> None:
    async with a_desk(rounds=60) as desk:
        text = await read(desk, role, "/ui/privacy")
        assert "This task adds no noise" in text
        assert "At least 2 devices in a sum At most 4 Smallest recently 2 of 1 rounds" in text
        assert ("Which enrolment token takes part" in text) == (role == 0)
        assert ("Which enrolment token a session belongs to" in text) == (role == 1)
        assert "What it cannot see Which items a device has" in text


async def test_without_a_budget_the_page_computes_what_one_would_take() -> None:
    async with a_desk(rounds=60) as desk:
        text = await read(desk, 0, "/ui/privacy")
    assert "A task of 60 rounds could guarantee" in text
    for budget in (1, 2, 4, 8):
        needed = float(solve_multiplier(budget=budget, delta=1e-5, rounds=60))
        assert epsilon(Terms(multiplier=needed, delta=1e-5), 60) <= budget
        assert f" {budget} {needed:.3g} × clip {math.sqrt(2) * needed / 2:.2g} × clip" in text


async def test_a_task_of_very_many_rounds_is_shown_what_a_thousand_would_take() -> None:
    async with a_desk(rounds=1_000_000) as desk:
        text = await read(desk, 0, "/ui/privacy")
    assert "A task of 1,000 rounds (this one has 1,000,000) could guarantee" in text
    assert "e+" not in text


async def test_without_the_accountant_the_page_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: object) -> None:
        raise AccountantMissingError("not installed")

    monkeypatch.setattr(privacy, "solve_multiplier", missing)
    async with a_desk(rounds=61) as desk:
        text = await read(desk, 0, "/ui/privacy")
    assert "pip install 'secemb[dp]'" in text.replace("&#39;", "'")
    assert "could guarantee" not in text


async def test_a_task_with_a_budget_shows_its_cohort_too() -> None:
    async with a_desk(privacy=PRIVACY) as desk:
        text = await read(desk, 1, "/ui/privacy")
    assert "At least 2 devices in a sum" in text
    assert "could guarantee" not in text
