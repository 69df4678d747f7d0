"""ε by number of rounds, for a multiplier and a δ, from privacy loss distributions; Rényi divergence for comparison.

    fixed cohort     nothing is assumed about who takes part. Gaussians compose to a Gaussian of multiplier z/√n, whose
                     ε(δ) is known in closed form (Balle and Wang 2018).
    Poisson rate q   each device takes part in a round independently with probability q, and the attacker does not
                     know which did: the loss of one sampled round, composed n times. An attacker who knows, as
                     server 0 does if devices show it enrolment tokens, is bounded by `epsilon_known`: the same
                     rounds without sampling.

Neighbouring datasets differ by the presence of one unit. Rounds are counted, never composed one by one: ε is a function
of their number, so two servers with the same count have the same ε. The library is imported on first use: this takes a
second, and a task without noise does not need it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from secemb_party.errors import AccountantMissingError, AccountingError

MOST_ROUNDS = 10**7
SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 0.2, 10.0**6
# Below two, the sampled divergence is a series that may not converge; without sampling, every order has a formula.
_ORDERS = (*range(2, 65), *range(72, 513, 8), 1024, 2048)
_LOW_ORDERS = tuple(1 + step / 100 for step in range(1, 100))
# Of losses, always rounded pessimistically: ε is slightly too large, by thousandths over thousands of rounds. Sums of
# probabilities are computed by Fourier transforms, whose own error matters below this δ.
_GRID, _SMALLEST_DELTA = 1e-3, 1e-10
_NO_PROMISE = 2000.0  # from this ε on, a bound is used: an exact result would take gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The guarantee of one round of a kind against each single server."""

    multiplier: float  # σ / Δ₂
    delta: float
    sampling_rate: float | None = None  # of Poisson sampling; none: a fixed cohort, without amplification

    def __post_init__(self) -> None:
        if not SMALLEST_MULTIPLIER <= self.multiplier <= LARGEST_MULTIPLIER:
            raise AccountingError(f"the noise multiplier must be {SMALLEST_MULTIPLIER} to {LARGEST_MULTIPLIER:,.0f}")
        if not 0 < self.delta < 1:
            raise AccountingError("δ must be between 0 and 1, and should be well below 1 / number of users")
        if self.sampling_rate is not None and not 0 < self.sampling_rate <= 1:
            raise AccountingError("a sampling rate must be above 0 and at most 1")
        if self.sampling_rate is not None and self.delta < _SMALLEST_DELTA:
            raise AccountingError(
                "with a sampling rate, δ must be at least 1e-10; smaller values cannot be computed accurately"
            )


Spell = tuple[Terms, int]  # a number of rounds with the same terms


@lru_cache(maxsize=4096)
def epsilon(terms: Terms, rounds: int) -> float:
    """Return the total ε of this number of rounds."""
    if not 0 <= rounds <= MOST_ROUNDS:
        raise AccountingError(f"rounds must be 0 to {MOST_ROUNDS:,}")
    if rounds == 0:
        return 0.0
    if terms.sampling_rate is None or terms.sampling_rate == 1:
        return _epsilon_of_gaussian(terms.multiplier / math.sqrt(rounds), terms.delta)
    known = epsilon_known(terms, rounds)
    if known > _NO_PROMISE and (bound := epsilon_by_divergence(terms, rounds)) > _NO_PROMISE:
        return min(known, bound)
    return float(_loss_of_one_round(terms).self_compose(rounds).get_epsilon_for_delta(terms.delta))


def epsilon_known(terms: Terms, rounds: int) -> float:
    """Return the ε against an attacker who knows who took part, so that sampling hides nothing."""
    return epsilon(replace(terms, sampling_rate=None), rounds)


@lru_cache(maxsize=4096)
def epsilon_by_divergence(terms: Terms, rounds: int) -> float:
    """Return a second, larger bound by Rényi divergence, for comparison with published results."""
    library = _library()
    event, orders = library.GaussianDpEvent(terms.multiplier), _ORDERS
    if terms.sampling_rate is None:
        orders = (*_LOW_ORDERS, *_ORDERS)
    else:
        event = library.PoissonSampledDpEvent(terms.sampling_rate, event)
    accountant = library.rdp.RdpAccountant(orders=orders)
    return float(accountant.compose(event, rounds).get_epsilon(terms.delta)) if rounds else 0.0


@lru_cache(maxsize=4096)
def epsilon_of_all(parts: tuple[Spell, ...]) -> float:
    """Return the total ε of rounds with different terms, as in a task and its predecessors, for the δ of the last."""
    last, spells = parts[-1][0], [(terms, rounds) for terms, rounds in parts if rounds]
    if not spells:
        return 0.0
    if len(spells) == 1:
        return epsilon(replace(spells[0][0], delta=last.delta), spells[0][1])
    if all(terms.sampling_rate in (None, 1) for terms, _ in spells):
        return _epsilon_of_gaussian(sum(rounds / terms.multiplier**2 for terms, rounds in spells) ** -0.5, last.delta)
    first, *others = (
        _loss_of_one_round(replace(terms, sampling_rate=terms.sampling_rate or 1.0)).self_compose(rounds)
        for terms, rounds in spells
    )
    for loss in others:
        first = first.compose(loss)
    return float(first.get_epsilon_for_delta(last.delta))


def rounds_within(terms: Terms, budget: float, most: int = MOST_ROUNDS) -> int:
    """Return the largest number of rounds, up to `most`, that cost no more than the budget."""
    return most_within(lambda rounds: epsilon(terms, rounds), budget, most)


def most_within(cost: Callable[[int], float], budget: float, most: int) -> int:
    """Return the largest number, up to `most`, that costs no more than the budget; the cost grows with the number."""
    if cost(1) > budget:
        return 0
    low, high = 1, 2
    while high <= most and cost(high) <= budget:
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low


def solve_multiplier(*, budget: float, delta: float, rounds: int, sampling_rate: float | None = None) -> Decimal:
    """Return the smallest multiplier, to three decimal places, for which the rounds stay within the budget."""
    terms = Terms(multiplier=1.0, delta=delta, sampling_rate=sampling_rate)
    enough = 1.0
    while epsilon(replace(terms, multiplier=enough), rounds) > budget:
        enough *= 2
        if enough > LARGEST_MULTIPLIER:
            raise AccountingError("no amount of noise meets this budget; allow a larger ε or fewer rounds")
    least, high = round(1000 * SMALLEST_MULTIPLIER), round(1000 * enough)
    low = least if enough == 1.0 else high // 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = epsilon(replace(terms, multiplier=middle / 1000), rounds) <= budget
        low, high = (low, middle) if fits else (middle, high)
    return Decimal(high) / 1000


def _epsilon_of_gaussian(multiplier: float, delta: float) -> float:
    """Return the smallest ε for which a Gaussian of this multiplier is (ε, δ)-private."""
    loss = _library().pld.privacy_loss_mechanism.GaussianPrivacyLoss(multiplier)
    low, high = 0.0, 1.0
    if loss.get_delta_for_epsilon(0.0) <= delta:
        return 0.0
    while loss.get_delta_for_epsilon(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if loss.get_delta_for_epsilon(middle) <= delta else (middle, high)
    return high


@lru_cache(maxsize=16)
def _loss_of_one_round(terms: Terms) -> Any:
    library = _library()
    return library.pld.privacy_loss_distribution.from_gaussian_mechanism(
        terms.multiplier,
        sampling_prob=terms.sampling_rate,
        value_discretization_interval=_GRID,
        neighboring_relation=library.NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ModuleNotFoundError as error:
        raise AccountantMissingError(
            "a task with noise needs dp-accounting, which is not installed: pip install secemb[dp]"
        ) from error
    return dp_accounting
