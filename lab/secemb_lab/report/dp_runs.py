"""One point of the report on differential privacy: a model trained with so much noise, and the error it ends with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from secemb_party.accountant import Terms, epsilon, epsilon_known, solve_multiplier
from secemb_shared.messages.privacy import LARGEST_EPSILON, RECORD, BudgetLine, Privacy
from secemb_shared.ring import Ring
from secemb_tools.datasets import Split
from secemb_tools.simulation.engine import CENTRAL, LOCAL, NO_NOISE, Engine
from secemb_tools.simulation.processes import Processes
from secemb_tools.simulation.recipes import Recipe, recipe_for
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.world import Sampled, world_for

FRACTION_BITS = 12  # leaves room for the noise of a small budget; the sum loses nothing that the noise would not hide
ROUNDS = {100: 160, 500: 80}  # by cohort: where more rounds cost more in noise than they teach
USER_CLIP = 5.0  # of a user's whole update
RECORD_CLIP = 1.0  # of one rating's gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be trained, and what it may cost."""

    model: str
    cohort: int
    unit: str
    where: str
    budget: float | None  # ε; none: clipped and sampled as the others, without noise
    delta: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a plan."""

    plan: Plan
    multiplier: float | None
    spent: float | None  # ε, never above the budget
    rmse: float
    best: float  # the smallest error on the way: what an early end would have reached

    @property
    def spent_known(self) -> float | None:
        """Return ε against those who know who took part: more, where the promise counts on chance."""
        if self.multiplier is None or self.plan.where == LOCAL:
            return self.spent
        return epsilon_known(Terms(multiplier=self.multiplier, delta=self.plan.delta), self.plan.rounds)


def plans(
    *, models: list[str], cohorts: list[int], budgets: list[float], unit: str, delta: float, rounds: int | None
) -> Iterator[Plan]:
    """Yield every run of the report: each model without noise, with central noise and with local noise."""
    for cohort in cohorts:
        for model in models:
            for where in (CENTRAL, LOCAL):
                for budget in (None, *budgets) if where == CENTRAL else budgets:
                    yield Plan(
                        model=model,
                        cohort=cohort,
                        unit=unit,
                        where=where,
                        budget=budget,
                        delta=delta,
                        rounds=rounds or ROUNDS.get(cohort, 100),
                    )


def carry_out(
    plan: Plan,
    data: Split,
    *,
    seed: int,
    points: int = 8,
    device_by_device: bool = False,
    processes: Processes | None = None,
) -> Outcome:
    """Train as planned; local noise all at once, or for each device on its own."""
    ratings = data.train
    schedule = Sampled(people=ratings.person_count, cohort=plan.cohort, seed=seed)
    terms, counted = _terms(plan, schedule)
    recipe = replace(recipe_for(plan.model, ratings.layout), rounds=plan.rounds, bar=None)
    world = world_for(recipe, ratings, seed=seed, schedule=schedule, **_fields(plan, recipe, schedule, terms))
    engine = Engine(
        world,
        way=PLAIN,
        noise=NO_NOISE if terms is None else plan.where,
        device_by_device=device_by_device,
        processes=processes,
    )
    errors = []
    for number in range(1, plan.rounds + 1):
        engine.step()
        if number % max(1, plan.rounds // points) == 0 or number == plan.rounds:
            errors.append(engine.rmse(data.test))
    return Outcome(
        plan=plan,
        multiplier=None if terms is None else terms.multiplier,
        spent=None if terms is None else epsilon(terms, counted),
        rmse=errors[-1],
        best=min(errors),
    )


def _terms(plan: Plan, schedule: Sampled) -> tuple[Terms | None, int]:
    """Return what a round promises, and how many of them count.

    Noise of the servers protects a person in a round of which it is not known whether they take part. Noise of a device
    goes out under the device's own name, in each round that it takes part in: there is nothing to hide behind. The
    device that takes part most often keeps to the budget, and so do all others.
    """
    if plan.budget is None:
        return None, 0
    rounds, rate = plan.rounds, None
    if plan.where == CENTRAL:
        rate = schedule.rate
    else:
        rounds = schedule.most_rounds_of_one(rounds)
    multiplier = solve_multiplier(budget=plan.budget, delta=plan.delta, rounds=rounds, sampling_rate=rate)
    return Terms(multiplier=float(multiplier), delta=plan.delta, sampling_rate=rate), rounds


def _fields(plan: Plan, recipe: Recipe, schedule: Sampled, terms: Terms | None) -> dict[str, Any]:
    """Return the task's clip, its noise, and room for both in the ring."""
    clip = int((RECORD_CLIP if plan.unit == RECORD else USER_CLIP) * 2**FRACTION_BITS)
    privacy = Privacy(
        unit=plan.unit,
        delta=_decimal(plan.delta),
        train=BudgetLine(
            clip=clip,
            multiplier=_decimal(1.0 if terms is None else terms.multiplier),
            epsilon=_decimal(plan.budget or LARGEST_EPSILON),
        ),
    )
    cohort = schedule.largest_cohort(plan.rounds)
    # No element of a user's update is above the clip. A record's is not either, but a device brings many of them.
    longest = clip * (recipe.capacity if plan.unit == RECORD else 1)
    bound = max(clip, min(longest, (Ring().half - privacy.rows.tail - 1) // cohort))
    return {"cohort": cohort, "fraction_bits": FRACTION_BITS, "bound": bound, "privacy": privacy}


def _decimal(value: float) -> str:
    """Return a number as a task has it."""
    return f"{value:.11f}".rstrip("0").removesuffix(".")
