"""Settings that follow from public facts: how many people, items and ratings there are."""

import pytest
from typer.testing import CliRunner

from secemb_shared.messages.spec import BPR, SQUARED
from secemb_tools.cli.main import app
from secemb_tools.specification import Density, decay_of, default_bias_rate, default_pulls, default_rounds


def pull(ratings: int, people: int, items: int) -> float:
    return default_pulls(SQUARED, Density.of(ratings=ratings, people=people, items=items))[0]


def test_the_pull_of_vectors_stays_near_ten_for_sets_of_usual_shapes() -> None:
    shapes = [(80_000, 943, 1682), (800_000, 6040, 3883), (16_000, 940, 1420), (3_400, 47, 960), (40_000, 5650, 3100)]
    assert all(8 < pull(*shape) < 13 for shape in shapes)


def test_a_few_items_that_everybody_rates_are_pulled_harder() -> None:
    assert pull(50_000, 8000, 60) > 5 * pull(50_000, 8000, 6000)


def test_no_set_is_so_dense_or_so_sparse_that_nothing_is_pulled() -> None:
    for ratings in (1, 10, 1000, 10**6, 10**9):
        assert pull(ratings, 1000, 1000) >= 1


def test_vectors_of_choices_are_pulled_and_their_biases_are_not() -> None:
    row_pull, bias_pull = default_pulls(BPR)
    assert row_pull > 0
    assert bias_pull == 0  # biases learn popularity


@pytest.mark.parametrize(
    ("ratings", "rounds"), [(1_000_000, 300), (60_000, 300), (24_000, 480), (14_000, 480), (None, 300)]
)
def test_rare_items_get_more_rounds(ratings: int | None, rounds: int) -> None:
    density = None if ratings is None else Density.of(ratings=ratings, people=6000, items=3000)
    assert default_rounds(6000, 100, density) == rounds


def test_the_help_of_task_create_names_the_defaults_of_the_rule() -> None:
    words = " ".join(CliRunner().invoke(app, ["task", "create", "--help"], env={"COLUMNS": "400"}).output.split())
    rates = f"default: {default_bias_rate(SQUARED):g}, or {default_bias_rate(BPR):g} for choices"
    _, bias_pull = default_pulls(SQUARED)
    assert rates in words
    assert f"default: {decay_of(bias_pull, 1):g} / --people" in words
    assert f"{decay_of(default_pulls(BPR)[0], 1):g} / --people for choices" in words
