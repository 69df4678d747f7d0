"""ε is what other people's accountants find, and grows with every round."""

import math
import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from opacus.accountants.analysis import rdp
from scipy import optimize, stats

from secemb_party import accountant
from secemb_party.accountant import (
    Terms,
    epsilon,
    epsilon_by_divergence,
    epsilon_known,
    rounds_within,
    solve_multiplier,
)
from secemb_party.errors import AccountantMissingError, AccountingError
from secemb_tools.operate.privacy import PrivacyInput, project_costs

DELTA = 1e-5
# multiplier, rate, rounds: the last two are those of published examples, see below
SAMPLED = [(1.0, 0.01, 1400), (1.0, 0.1, 100), (2.0, 0.1, 1400), (1.12, 256 / 60_000, 14_062), (4.0, 0.01, 10_000)]


def epsilon_of_balle_and_wang(multiplier: float) -> float:
    """Return ε of one Gaussian, from Theorem 8 of Balle and Wang (2018)."""

    def excess(e: float) -> float:
        near, far = 1 / (2 * multiplier) - e * multiplier, -1 / (2 * multiplier) - e * multiplier
        return float(stats.norm.cdf(near) - math.exp(e) * stats.norm.cdf(far)) - DELTA

    return float(optimize.brentq(excess, 0, 200, xtol=1e-12))


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (0.5, 1), (10.0, 100), (30.0, 1400)])
def test_a_fixed_cohort_costs_what_the_closed_form_says(multiplier: float, rounds: int) -> None:
    found = epsilon(Terms(multiplier=multiplier, delta=DELTA), rounds)
    assert found == pytest.approx(epsilon_of_balle_and_wang(multiplier / math.sqrt(rounds)), rel=1e-6)


def test_a_published_multiplier_of_the_gaussian_mechanism_is_met() -> None:
    # σ = 3.7306 for ε = 1, δ = 10^−5: the analytic Gaussian mechanism; the classic formula asks for 4.84.
    assert epsilon(Terms(multiplier=3.7306, delta=DELTA), 1) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("multiplier", "sampling_rate", "rounds"), SAMPLED)
def test_a_sampled_cohort_costs_what_a_second_library_finds(
    multiplier: float, sampling_rate: float, rounds: int
) -> None:
    other = PRVAccountant()
    other.history = [(multiplier, sampling_rate, rounds)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the orders that it bounds its own search with
        expected = other.get_epsilon(DELTA, eps_error=0.01, delta_error=1e-8)
    assert epsilon(Terms(multiplier=multiplier, delta=DELTA, sampling_rate=sampling_rate), rounds) == pytest.approx(
        expected, abs=0.02
    )


@pytest.mark.parametrize(("multiplier", "sampling_rate", "rounds"), SAMPLED)
def test_the_bound_by_divergence_is_a_second_librarys_too(multiplier: float, sampling_rate: float, rounds: int) -> None:
    orders = list(range(2, 512))
    divergences = rdp.compute_rdp(q=sampling_rate, noise_multiplier=multiplier, steps=rounds, orders=orders)
    expected, _ = rdp.get_privacy_spent(orders=orders, rdp=divergences, delta=DELTA)
    found = epsilon_by_divergence(Terms(multiplier=multiplier, delta=DELTA, sampling_rate=sampling_rate), rounds)
    assert found == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(
    ("multiplier", "sampling_rate", "rounds", "published"),
    [
        (1.12, 256 / 60_000, 14_062, 2.92),  # tutorials/README.md of TensorFlow Privacy: 60 epochs of MNIST,
        (0.6, 256 / 60_000, 7_031, 9.74),  # 30 epochs,
        (1.2, 256 / 60_000, 2_343, 1.20),  # and 10
        (4.0, 0.01, 10_000, 1.26),  # Abadi et al. (2016), section 3.2: the moments accountant
    ],
)
def test_published_values_are_upper_bounds_and_near(
    multiplier: float, sampling_rate: float, rounds: int, published: float
) -> None:
    # Both were found with a looser step from Rényi divergence to ε than is known today.
    terms = Terms(multiplier=multiplier, delta=DELTA, sampling_rate=sampling_rate)
    assert 0.6 * published < epsilon(terms, rounds) < epsilon_by_divergence(terms, rounds) < published


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 50), st.integers(0, 3000), st.integers(1, 500))
def test_more_rounds_never_cost_less(multiplier: float, rounds: int, more: int) -> None:
    terms = Terms(multiplier=multiplier, delta=DELTA)
    assert epsilon(terms, rounds) < epsilon(terms, rounds + more)


def test_sampling_never_costs_more_and_a_rate_of_one_costs_the_same() -> None:
    fixed = Terms(multiplier=2.0, delta=DELTA)
    assert epsilon(Terms(multiplier=2.0, delta=DELTA, sampling_rate=0.2), 50) < epsilon(fixed, 50)
    assert epsilon(Terms(multiplier=2.0, delta=DELTA, sampling_rate=1.0), 50) == epsilon(fixed, 50)


@pytest.mark.parametrize("sampling_rate", [None, 0.05])
def test_the_rounds_of_a_budget_fit_into_it_and_one_more_does_not(sampling_rate: float | None) -> None:
    terms = Terms(multiplier=2.0, delta=DELTA, sampling_rate=sampling_rate)
    rounds = rounds_within(terms, 5.0)
    assert epsilon(terms, rounds) <= 5.0 < epsilon(terms, rounds + 1)
    assert rounds_within(terms, 5.0, most=2) == 2
    assert rounds_within(terms, 0.001) == 0


@pytest.mark.parametrize("sampling_rate", [None, 0.1])
def test_a_multiplier_that_is_solved_for_keeps_to_the_budget_and_is_the_smallest(sampling_rate: float | None) -> None:
    multiplier = float(solve_multiplier(budget=4.0, delta=DELTA, rounds=100, sampling_rate=sampling_rate))
    assert epsilon(Terms(multiplier=multiplier, delta=DELTA, sampling_rate=sampling_rate), 100) <= 4.0
    assert epsilon(Terms(multiplier=multiplier - 0.0011, delta=DELTA, sampling_rate=sampling_rate), 100) > 4.0


def test_the_papers_formula_promises_too_much_against_a_server() -> None:
    budget = 0.9
    of_the_paper = math.sqrt(math.log(1.25 / DELTA)) / budget
    classic = math.sqrt(2) * of_the_paper
    assert epsilon(Terms(multiplier=classic, delta=DELTA), 1) <= budget
    assert epsilon(Terms(multiplier=of_the_paper, delta=DELTA), 1) > budget


@pytest.mark.parametrize(
    "terms",
    [
        {"multiplier": 0.0, "delta": DELTA},
        {"multiplier": 1.0, "delta": 0.0},
        {"multiplier": 1.0, "delta": 1.0},
        {"multiplier": 1.0, "delta": DELTA, "sampling_rate": 0.0},
        {"multiplier": 1.0, "delta": DELTA, "sampling_rate": 1.1},
        {"multiplier": math.nan, "delta": DELTA},
    ],
)
def test_terms_that_promise_nothing_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(AccountingError):
        Terms(**terms)


def test_a_budget_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(AccountingError, match="budget"):
        solve_multiplier(budget=1e-6, delta=1e-12, rounds=10**6)


def test_without_the_library_an_operator_reads_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    accountant._library.cache_clear()
    with pytest.raises(AccountantMissingError, match=r"pip install secemb\[dp\]"):
        epsilon_by_divergence(Terms(multiplier=1.2345, delta=DELTA), 1)


def test_a_projection_solves_for_the_noise_or_says_what_it_costs() -> None:
    solved = project_costs(PrivacyInput(rounds=100, multiplier=None, budget=4.0, delta=DELTA, sampling_rate=None))
    told = project_costs(
        PrivacyInput(
            rounds=100, multiplier=float(str(solved["multiplier"])), budget=None, delta=DELTA, sampling_rate=None
        )
    )
    assert solved["epsilon"] == told["epsilon"]
    assert 3.99 < float(str(told["epsilon"])) <= 4.0
    assert solved["rounds_within_budget"] == 100
    assert told["rounds_within_budget"] is None
    assert told["epsilon_known"] == told["epsilon"]


def test_a_projection_with_a_rate_says_what_it_costs_against_those_who_know_who_took_part() -> None:
    plain, sampled = (
        project_costs(PrivacyInput(rounds=100, multiplier=2.0, budget=None, delta=DELTA, sampling_rate=sampling_rate))
        for sampling_rate in (None, 0.05)
    )
    assert float(str(sampled["epsilon"])) < float(str(plain["epsilon"])) == sampled["epsilon_known"]


def test_little_noise_over_many_rounds_has_a_cost_too() -> None:
    # Against those who know who took part, a task that counts on chance may promise next to nothing; it is told.
    rounds, least = accountant.MOST_ROUNDS, accountant.SMALLEST_MULTIPLIER
    found = epsilon_known(Terms(multiplier=least, delta=DELTA, sampling_rate=1e-6), rounds)
    assert found == pytest.approx(rounds / (2 * least**2), rel=0.01)


def test_where_nothing_is_promised_any_more_a_bound_will_do() -> None:
    """To be exact about such an ε would take gigabytes; it still grows with every round and stays below both bounds."""
    terms = Terms(multiplier=0.2, delta=1e-5, sampling_rate=0.5)
    costs = [epsilon(terms, rounds) for rounds in (1, 10, 100, 1000, 10**6, 10**7)]
    assert costs == sorted(costs)
    assert costs[-1] == min(epsilon_known(terms, 10**7), epsilon_by_divergence(terms, 10**7)) > 10**6


@pytest.mark.parametrize("sampling_rate", [0.01, 0.11, 0.53, 1.0])
def test_more_rounds_never_cost_less_with_a_rate_either(sampling_rate: float) -> None:
    terms = Terms(multiplier=0.5, delta=1e-4, sampling_rate=sampling_rate)
    costs = [epsilon(terms, rounds) for rounds in (1, 2, 3, 10, 50, 200, 1000, 3000)]
    assert costs == sorted(costs)
    assert all(cost <= epsilon_known(terms, rounds) + 1e-3 for cost, rounds in zip(costs[:3], (1, 2, 3), strict=True))
