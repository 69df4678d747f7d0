"""What a number of rounds with noise would cost: for an operator who has not made the task yet."""

from dataclasses import dataclass

from secemb_party.accountant import (
    Terms,
    epsilon,
    epsilon_by_divergence,
    epsilon_known,
    rounds_within,
    solve_multiplier,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is known of a task: its rounds, and noise or budget."""

    rounds: int
    multiplier: float | None
    budget: float | None
    delta: float
    rate: float | None


def project_costs(wish: Wish) -> dict[str, object]:
    """Return ε after all rounds, in three ways, and how many rounds the budget has room for."""
    multiplier = wish.multiplier
    if multiplier is None:
        solved = solve_multiplier(budget=wish.budget or 0.0, delta=wish.delta, rounds=wish.rounds, rate=wish.rate)
        multiplier = float(solved)
    terms = Terms(multiplier=multiplier, delta=wish.delta, rate=wish.rate)
    return {
        "multiplier": multiplier,
        "delta": wish.delta,
        "rate": wish.rate,
        "rounds": wish.rounds,
        "epsilon": epsilon(terms, wish.rounds),
        "epsilon_known": epsilon_known(terms, wish.rounds),
        "epsilon_by_divergence": epsilon_by_divergence(terms, wish.rounds),
        "budget": wish.budget,
        "rounds_within_budget": None if wish.budget is None else rounds_within(terms, wish.budget),
    }
