"""One point of the report on differential privacy: a model trained with given noise, and its final error."""

from collections.abc import Iterator
from dataclasses import dataclass

from secemb_party.accountant import Terms, epsilon, epsilon_known, solve_multiplier
from secemb_tools.datasets import Split
from secemb_tools.simulation.engine import CENTRAL, LOCAL, NO_NOISE, Engine
from secemb_tools.simulation.noise import NoiseOptions, calmed, noisy_fields, terms_of
from secemb_tools.simulation.processes import Processes
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import with_scale
from secemb_tools.simulation.world import Sampled, world_for

ROUNDS = {100: 50, 500: 50}  # by cohort: where more rounds cost more in noise than they teach


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A training with its privacy budget."""

    model: str
    cohort: int
    unit: str
    where: str
    budget: float | None  # ε; none: clipped and sampled as the others, without noise
    delta: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a plan."""

    plan: Plan
    multiplier: float | None
    spent: float | None  # ε, never above the budget
    rmse: float
    best: float  # the smallest error on the way: what an early end would have reached

    @property
    def spent_known(self) -> float | None:
        """Return ε against those who know who took part, which is larger if the guarantee relies on sampling."""
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
    recipe = Recipe.by_rule(ratings, model=plan.model, rounds=plan.rounds, cohort=plan.cohort, unit=plan.unit)
    recipe = with_scale(recipe, ratings, seed=seed)
    multiplier = 1.0 if terms is None else terms.multiplier
    if terms is not None:
        sources = 2 if plan.where == CENTRAL else plan.cohort
        recipe = calmed(recipe, _options(plan), multiplier=multiplier, sources=sources)
    fields = noisy_fields(recipe, schedule, _options(plan), multiplier=multiplier)
    world = world_for(recipe, ratings, seed=seed, schedule=schedule, **fields)
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
    """Return the guarantee of a round, and how many rounds count.

    Noise of the servers protects a person in a round of which it is not known whether they take part. Noise of a device
    goes out under the device's own name, in each round that it takes part in: there is nothing to hide behind. The
    device that takes part most often keeps to the budget, and so do all others.
    """
    if plan.budget is None or plan.where == CENTRAL:
        return terms_of(_options(plan), schedule, plan.rounds), plan.rounds
    rounds = schedule.most_rounds_of_one(plan.rounds)
    multiplier = solve_multiplier(budget=plan.budget, delta=plan.delta, rounds=rounds, sampling_rate=None)
    return Terms(multiplier=float(multiplier), delta=plan.delta, sampling_rate=None), rounds


def _options(plan: Plan) -> NoiseOptions:
    return NoiseOptions(epsilon=plan.budget, delta=plan.delta, unit=plan.unit)
