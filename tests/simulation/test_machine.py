"""Whatever happens in whatever order, the two servers stay one: 72 histories, thousands with SOAK_TESTS=1."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.simulation.machine import ProvedRounds, Rounds

SOAK = bool(os.environ.get("SOAK_TESTS"))
EXAMPLES = 1000 if SOAK else 16
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.timeout(0 if SOAK else 900)
@pytest.mark.parametrize("part", range(4))  # so that several cores share the work
def test_the_servers_never_disagree_lose_or_count_twice(part: int) -> None:
    _play(Rounds, EXAMPLES)


@pytest.mark.timeout(0 if SOAK else 900)
def test_the_same_holds_where_devices_prove_how_long_their_update_is() -> None:
    _play(ProvedRounds, EXAMPLES // 2)


def _play(machine: type[Rounds], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        # Where Hypothesis sees a CI it would repeat itself, and all four parts would run the same histories.
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=False,
            suppress_health_check=CHECKS,
        ),
    )
