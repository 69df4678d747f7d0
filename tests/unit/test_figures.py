"""The fleet's figures from sums of evaluations: against the devices' own numbers, and against resampling."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.sessions import make_task

from secemb_party.ledger import Ledger
from secemb_server0.figures import Moments, describe_window, pool, read_evaluations
from secemb_shared.messages.measures import SUM_NAMES, EvaluationSums, EventSums, count_strangers
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import NEXT

TASK = replace(make_task(items=400, capacity=60), centre="3.5")
NOISY = replace(
    TASK,
    privacy=Privacy(
        unit="user",
        delta="0.000001",
        train=BudgetLine(clip=2**16, multiplier="1", epsilon="1"),
        evaluate=BudgetLine(clip=2**16, multiplier="1", epsilon="1"),
    ),
)


def devices(count: int, seed: int, *, spread: float = 0.5) -> list[EvaluationSums]:
    """Return what devices with different numbers of ratings and different errors measure."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        errors = random.normal(0, math.exp(random.normal(-0.2, spread)), random.integers(1, 12))
        values, ndcg = random.normal(3.6, 1.1, errors.size), float(random.random())
        n, squared = float(errors.size), float((errors**2).sum())
        found.append(
            EvaluationSums(
                predictions=n,
                squared=squared,
                absolute=float(np.abs(errors).sum()),
                above=float(np.maximum(values - 3.5, 0).sum()),
                below=float(np.maximum(3.5 - values, 0).sum()),
                spread=float(((values - 3.5) ** 2).sum()),
                biases=1.1 * squared,
                predictions_2=n * n / 60,
                both=n * squared / 60,
                squared_2=squared * squared / 60,
                rankings=1.0,
                hits=float(ndcg > 0.4),
                recall=ndcg / 2,
                ndcg=ndcg,
                reciprocal=ndcg / 3,
                recall_2=ndcg**2 / 4,
                ndcg_2=ndcg**2,
                reciprocal_2=ndcg**2 / 9,
                popular_hits=1.0,
                popular_recall=0.25,
                popular_ndcg=0.25,
                popular_reciprocal=0.5,
            )
        )
    return found


def total(measured: Sequence[EvaluationSums | EventSums]) -> list[float]:
    sums: list[float] = np.sum([one.numbers() for one in measured], axis=0).tolist()
    return sums


def test_figures_are_ratios_of_sums() -> None:
    measured = devices(200, 1)
    found = read_evaluations(TASK, [total(measured)])
    n = sum(one.predictions for one in measured)
    assert found["predictions"] == n
    assert found["rmse"] == pytest.approx(math.sqrt(sum(one.squared for one in measured) / n))
    assert found["mae"] == pytest.approx(sum(one.absolute for one in measured) / n)
    assert found["biases_rmse"] == pytest.approx(math.sqrt(1.1) * found["rmse"])
    assert found["mean_rmse"] == pytest.approx(1.1, abs=0.05)
    assert (found["rankings"], found["k"], found["strangers"]) == (200, 10, 20)
    assert found["hit_rate"] == pytest.approx(np.mean([one.hits for one in measured]))
    assert found["mrr"] == pytest.approx(np.mean([one.reciprocal for one in measured]))
    assert (found["popular_hit_rate"], found["popular_mrr"]) == (1.0, 0.5)


def resampled(measured: list[EvaluationSums], figure: str) -> tuple[float, float]:
    """Return the interval that drawing devices again and again gives."""
    random, table = np.random.default_rng(5), np.array([one.numbers() for one in measured])
    drawn = [table[random.integers(0, len(table), len(table))].sum(axis=0).tolist() for _ in range(2000)]
    low, high = np.percentile([read_evaluations(TASK, [one])[figure] for one in drawn], [2.5, 97.5])
    return float(low), float(high)


@pytest.mark.parametrize("figure", ["rmse", "hit_rate", "recall", "ndcg", "mrr"])
def test_an_interval_is_what_resampling_devices_gives(figure: str) -> None:
    measured = devices(300, 2)
    found = read_evaluations(TASK, [total(measured)])
    low, high = resampled(measured, figure)
    width = high - low
    assert found[f"{figure}_low"] == pytest.approx(low, abs=0.15 * width)
    assert found[f"{figure}_high"] == pytest.approx(high, abs=0.15 * width)


def test_an_interval_that_takes_ratings_for_devices_is_found_too_narrow() -> None:
    """Planted fault: a person's ratings counted as independent."""
    measured = devices(300, 2, spread=1.0)
    low, high = resampled(measured, "rmse")
    n, squared = (sum(getattr(one, name) for one in measured) for name in ("predictions", "squared"))
    naive = math.sqrt(2 / n) * squared / n * 1.96  # as if all errors were normal with one variance
    assert math.sqrt(squared / n + naive) - math.sqrt(squared / n - naive) < 0.6 * (high - low)


@pytest.mark.parametrize("noisy", [False, True])
def test_an_interval_holds_the_truth_in_95_of_100_cases(noisy: bool) -> None:
    fleet = np.array([one.numbers() for one in devices(4000, 3)])
    truth = math.sqrt(fleet[:, 1].sum() / fleet[:, 0].sum())
    held, runs = 0, 300
    for run in range(runs):
        drawn = np.random.default_rng(run).integers(0, len(fleet), (5, 60))
        rounds = [fleet[one].sum(axis=0).tolist() for one in drawn]
        if noisy:  # what devices do not say with noise is not used
            keep = [0.0 if name.endswith("_2") or name == "both" else 1.0 for name in SUM_NAMES]
            noise = np.random.default_rng(run).normal(0, math.sqrt(2), (5, len(SUM_NAMES)))
            rounds = (np.array(rounds) * keep + noise).tolist()
        found = read_evaluations(NOISY if noisy else TASK, rounds)
        held += found["rmse_low"] <= truth <= found["rmse_high"]
    assert 0.9 <= held / runs <= 0.99


def test_what_nothing_contributes_to_is_left_out() -> None:
    assert read_evaluations(TASK, [[0.0] * len(SUM_NAMES)]) == {}
    assert read_evaluations(TASK, []) == {}
    only = read_evaluations(TASK, [EvaluationSums(predictions=2.0, squared=8.0).numbers().tolist()])
    assert only["rmse"] == 2.0
    assert "hit_rate" not in only
    assert "rmse_low" not in only


def test_one_device_has_no_interval() -> None:
    assert "rmse_low" not in read_evaluations(TASK, [total(devices(1, 4))])


def test_a_count_that_is_mostly_noise_gives_no_figure() -> None:
    """The noise of both servers has a deviation of √2 here."""
    few, some = (EvaluationSums(predictions=n, squared=n).numbers().tolist() for n in (4.0, 5.0))
    assert read_evaluations(NOISY, [few]) == {}
    assert read_evaluations(NOISY, [some])["rmse"] == 1.0
    assert read_evaluations(TASK, [few])["rmse"] == 1.0


def test_noise_gives_no_figure_that_cannot_be() -> None:
    sums = EvaluationSums(predictions=50.0, squared=-3.0, absolute=-2.0, spread=-5.0, rankings=9.0, hits=11.0)
    found = read_evaluations(NOISY, [replace(sums, recall=-2.0).numbers().tolist()])
    assert (found["rmse"], found["mae"], found["mean_rmse"], found["hit_rate"], found["recall"]) == (0, 0, 0, 1, 0)


def test_with_noise_an_interval_takes_three_rounds() -> None:
    rounds = [total(devices(60, number)) for number in range(3)]
    assert "rmse_low" not in read_evaluations(NOISY, rounds[:2])
    assert read_evaluations(NOISY, rounds)["rmse_low"] < read_evaluations(NOISY, rounds)["rmse"]


def test_moments_of_pairs_are_sums() -> None:
    found = Moments.over([(1.0, 2.0), (3.0, 4.0)])
    wanted = Moments(above=4.0, below=6.0, above_2=10.0, both=14.0, below_2=20.0, groups=2)
    assert found == wanted
    assert Moments.over([(1.0, 2.0)]).interval() is None
    assert Moments.over([(1.0, 2.0), (2.0, 4.0)]).interval() == pytest.approx((0.5, 0.5))


def test_a_window_has_the_newest_evaluations() -> None:
    sums = {number: total(devices(40, number)) for number in (4, 9, 1, 3, 8, 6, 7)}
    wanted = read_evaluations(TASK, [sums[number] for number in (4, 6, 7, 8, 9)])
    assert pool(TASK, sums) == {"rounds": [4, 6, 7, 8, 9]} | wanted
    assert pool(TASK, {4: sums[4]}) == {"rounds": [4]} | read_evaluations(TASK, [sums[4]])


@pytest.mark.asyncio
async def test_a_window_takes_a_repeated_step_once_and_ends_at_a_rollback(tmp_path: Path) -> None:
    sums = {number: total(devices(40, number)) for number in range(5)}
    async with await Ledger.open(f"sqlite:///{tmp_path}/ledger.db", migrate=True) as ledger:

        async def note(kind: str, data: dict[str, Any]) -> None:
            await ledger.append_event(kind, data, 1.0)

        async def rounds(number: int) -> list[int]:
            found = await describe_window(ledger, TASK, number, sums[number])
            assert found["sums"] == sums[number]
            assert found["window"] == pool(TASK, {one: sums[one] for one in found["window"]["rounds"]})
            return list(found["window"]["rounds"])

        await note("result", {"round": 0, "mean_items": 4.0})
        await note("result", {"round": 1, "sums": [1.0] * len(SUM_NAMES)})
        await note("result", {"round": 1, "sums": sums[1]})  # the step again, after a crash
        await note("rollback", {"source": 1, "reason": "abandoned"})
        assert await rounds(2) == [1, 2]
        assert await rounds(1) == [1]
        await note("result", {"round": 2, "sums": sums[2]})
        await note("rollback", {"source": 1, "version": 3})
        assert await rounds(3) == [3]
        await note("result", {"round": 3, "sums": sums[3]})
        assert await rounds(4) == [3, 4]


EVENTS = make_task(items=400, capacity=60, loss=NEXT)


def test_events_have_figures_among_a_hundred_strangers_and_in_the_whole_catalogue() -> None:
    """Two devices: one finds its event first among strangers and fifth of all, the other twice too late."""
    first = EventSums(rankings=1, hits=1, ndcg=1, reciprocal=1, whole_hits=1, whole_ndcg=0.4, popular_whole_hits=1)
    second = EventSums(rankings=1, reciprocal=0.05, whole_reciprocal=0.01, surprise=4.0, surprise_2=16.0)
    found = read_evaluations(EVENTS, [total([first, second])])
    assert (found["strangers"], found["hit_rate"], found["whole_hit_rate"]) == (100, 0.5, 0.5)
    assert (found["ndcg"], found["whole_ndcg"], found["popular_whole_hit_rate"]) == (0.5, 0.2, 0.5)
    assert found["perplexity"] == pytest.approx(math.exp(2.0))
    assert found["perplexity_low"] < found["perplexity"] < found["perplexity_high"]
    assert "rmse" not in found


def test_a_table_too_large_to_fetch_has_figures_among_the_strangers_of_a_session() -> None:
    large = replace(EVENTS, items=2**24)
    found = read_evaluations(large, [total([EventSums(rankings=1, hits=1)])])
    assert found["strangers"] == count_strangers(EVENTS.capacity)
    assert not {"whole_hit_rate", "perplexity"} & found.keys()


def test_a_model_that_has_diverged_still_has_a_perplexity() -> None:
    found = read_evaluations(EVENTS, [total([EventSums(rankings=1, surprise=1e6)])])
    assert math.isfinite(found["perplexity"])
