"""Figures over a test set against the textbook, hand-computed cases and resampling; baselines against closed forms."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_tools.datasets import RatingSet, Split, split, split_leave_last_out
from secemb_tools.simulation import accuracy
from secemb_tools.simulation.accuracy import Estimate, Numbers, RankingFigures, measure_ranking, measure_ratings
from secemb_tools.simulation.baseline import measure_baselines, popularity, predict_biases, predict_mean

DATA = split(made_up_ratings(people=60, items=90, count=1500), seed=2)


def ratings(*triples: tuple[int, int, float], people: int = 3, items: int = 6) -> RatingSet:
    who, what, values = zip(*triples, strict=True)
    return RatingSet(
        name="by hand",
        people=np.array(who),
        items=np.array(what),
        values=np.array(values, np.float32),
        user_features=np.zeros((people, 0), np.uint8),
        item_features=np.zeros((items, 0), np.uint8),
    )


def table(data: Split, seed: int = 0) -> Numbers:
    """Return scores with ties."""
    shape = (data.train.person_count, data.train.item_count)
    return np.random.default_rng(seed).integers(0, 30, shape).astype(np.float32)


# Rankings.


def ranked_slowly(scores: Numbers, data: Split, k: int) -> dict[str, float]:
    """The textbook, one person and one place at a time."""
    figures: dict[str, list[float]] = {"hit_rate": [], "recall": [], "ndcg": [], "mrr": []}
    covered: set[int] = set()
    for person in range(data.test.person_count):
        held = set(data.test.items[data.test.people == person].tolist())
        trained = set(data.train.items[data.train.people == person].tolist())
        if not held:
            continue
        items = [item for item in range(scores.shape[1]) if item not in trained]
        order = sorted(items, key=lambda item: (-scores[person, item], item in held))
        places = [place for place, item in enumerate(order, start=1) if item in held]
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(held)) + 1))
        figures["hit_rate"].append(float(places[0] <= k))
        figures["recall"].append(sum(place <= k for place in places) / len(held))
        figures["ndcg"].append(sum(1 / math.log2(place + 1) for place in places if place <= k) / ideal)
        figures["mrr"].append(1 / places[0])
        covered |= set(sorted(items, key=lambda item: (-scores[person, item], -item))[:k])
    return {name: float(np.mean(values)) for name, values in figures.items()} | {
        "coverage": len(covered) / len(scores.T)
    }


def values(found: RankingFigures) -> dict[str, float]:
    names = ("hit_rate", "recall", "ndcg", "mrr")
    assert found.coverage is not None
    return {name: getattr(found, name).value for name in names} | {"coverage": found.coverage}


@pytest.mark.parametrize("k", [1, 5, 10, 40, 200])
@pytest.mark.parametrize("together", [1, 7, 256])
def test_rankings_of_the_whole_catalogue_are_the_textbooks(
    k: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "_TOGETHER", together)
    monkeypatch.setattr(accuracy, "_BLOCK", 3)
    scores = table(DATA)
    found = measure_ranking(lambda people: scores[people], DATA, k=k)
    assert values(found) == pytest.approx(ranked_slowly(scores, DATA, k))
    assert (found.k, found.strangers, found.interactions) == (k, None, DATA.test.items.size)


def test_a_ranking_computed_by_hand() -> None:
    data = Split(train=ratings((0, 0, 5.0), (1, 1, 5.0)), test=ratings((0, 1, 1.0), (0, 4, 1.0), (1, 3, 1.0)))
    scores = np.array([[9, 2, 8, 1, 7, 0], [3, 9, 5, 4, 4, 1], [0] * 6], np.float32)
    # Person 0 ranks 2, 4, 1, 3, 5, with held-out items second and third; person 1 ranks 2, 4, 3, 0, 5: third, by a tie.
    found = measure_ranking(lambda people: scores[people], data, k=2)
    gain = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    assert values(found) == pytest.approx(
        {"hit_rate": 0.5, "recall": 0.25, "ndcg": gain / 2, "mrr": (1 / 2 + 1 / 3) / 2, "coverage": 2 / 6}
    )
    assert (found.people, found.interactions) == (2, 3)


@pytest.mark.parametrize("fault", ["training items stay", "scores of other people"])
def test_a_wrong_ranking_is_found(fault: str) -> None:
    scores = table(DATA)
    empty = replace(
        DATA.train, people=np.empty(0, np.int64), items=np.empty(0, np.int64), values=np.empty(0, np.float32)
    )
    wrong = Split(train=empty, test=DATA.test) if fault == "training items stay" else DATA
    if fault == "scores of other people":
        scores = scores[::-1].copy()
    found = measure_ranking(lambda people: scores[people], wrong, k=10)
    assert values(found) != pytest.approx(ranked_slowly(table(DATA), DATA, 10))


def test_strangers_are_a_sample_that_the_seed_decides() -> None:
    scores = table(DATA)

    def ndcg(strangers: int | None, seed: int = 0) -> float:
        found = measure_ranking(lambda people: scores[people], DATA, strangers=strangers, seed=seed)
        assert found.strangers == strangers
        assert (found.coverage is None) == (strangers is not None)
        return found.ndcg.value

    assert ndcg(20) == ndcg(20)
    assert ndcg(20) != ndcg(20, seed=1)
    assert ndcg(20) > ndcg(None)
    assert ndcg(1000) == ndcg(None)


def expected_among_strangers(scores: Numbers, data: Split, *, k: int, strangers: int) -> tuple[float, float]:
    """Return hit rate and NDCG of one held-out item each, over every sample that could be drawn: counted, not drawn."""
    figures = []
    for person, item in zip(data.test.people.tolist(), data.test.items.tolist(), strict=True):
        known = {item, *data.train.items[data.train.people == person].tolist()}
        others = [float(score) for one, score in enumerate(scores[person]) if one not in known]
        before = sum(score >= scores[person, item] for score in others)  # of equal scores the stranger comes first
        ways = [
            math.comb(before, place) * math.comb(len(others) - before, strangers - place)
            for place in range(min(k, strangers + 1))
        ]
        shares = [count / math.comb(len(others), strangers) for count in ways]
        figures.append((sum(shares), sum(share / math.log2(place + 2) for place, share in enumerate(shares))))
    hits, gains = zip(*figures, strict=True)
    return float(np.mean(hits)), float(np.mean(gains))


@pytest.mark.parametrize("highest", [30, 3])  # few different scores: most are ties
def test_figures_among_strangers_are_on_average_those_of_all_samples(highest: int) -> None:
    ratings = made_up_ratings(people=40, items=60, count=600)
    data = split_leave_last_out(ratings)
    scores = np.random.default_rng(1).integers(0, highest, (40, 60)).astype(np.float32)
    found = [measure_ranking(lambda people: scores[people], data, k=5, strangers=12, seed=seed) for seed in range(300)]
    hit_rate, ndcg = expected_among_strangers(scores, data, k=5, strangers=12)
    assert np.mean([one.hit_rate.value for one in found]) == pytest.approx(hit_rate, abs=0.01)
    assert np.mean([one.ndcg.value for one in found]) == pytest.approx(ndcg, abs=0.01)
    one_more = expected_among_strangers(scores, data, k=5, strangers=14)
    assert one_more[0] < hit_rate - 0.02, "two strangers more would be noticed"


# Ratings.


def test_errors_computed_by_hand() -> None:
    data = Split(train=ratings((0, 0, 1.0), (1, 1, 5.0)), test=ratings((0, 1, 4.0), (0, 2, 5.0), (1, 0, 2.0)))
    found = measure_ratings(np.array([3.0, 9.0, -4.0]), data)  # the last two are cut to 5 and 1
    assert found.rmse.value == pytest.approx(math.sqrt((1 + 0 + 1) / 3))
    assert found.mae.value == pytest.approx(2 / 3)
    assert (found.interactions, found.people) == (3, 2)


def test_one_person_has_no_interval() -> None:
    data = Split(train=ratings((0, 0, 1.0), (1, 1, 5.0)), test=ratings((0, 1, 4.0), (0, 2, 5.0)))
    assert measure_ratings(np.array([3.0, 3.0]), data).rmse.low is None


def resampled(data: Split, figure: Any) -> tuple[float, float]:
    """Return the interval that drawing people again and again gives."""
    random, slices = np.random.default_rng(1), data.test.by_person()
    drawn = [
        figure(np.concatenate([np.arange(slices[one].start, slices[one].stop) for one in random.integers(0, 60, 60)]))
        for _ in range(1000)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def test_an_interval_is_what_resampling_people_gives() -> None:
    predictions = predict_biases(DATA)
    found = measure_ratings(predictions, DATA).rmse
    errors = np.clip(predictions, DATA.train.values.min(), DATA.train.values.max()) - DATA.test.values
    low, high = resampled(DATA, lambda chosen: float(np.sqrt(np.mean(errors[chosen] ** 2))))
    assert found.low == pytest.approx(low, abs=0.2 * (high - low))
    assert found.high == pytest.approx(high, abs=0.2 * (high - low))


def test_the_root_of_an_estimate_keeps_its_ends_in_order() -> None:
    assert Estimate(4.0, 1.0, 9.0).root() == Estimate(2.0, 1.0, 3.0)
    assert Estimate(4.0, -1.0, 9.0).root() == Estimate(2.0, 0.0, 3.0)
    assert Estimate(4.0, None, None).root() == Estimate(2.0, None, None)


# Baselines.


def test_biases_are_the_ridge_regressions_closed_form() -> None:
    train, test = DATA.train, DATA.test
    people, items = train.person_count, train.item_count
    design = np.zeros((train.values.size, people + items))
    design[np.arange(train.values.size), train.people] = 1
    design[np.arange(train.values.size), people + train.items] = 1
    mean = train.values.mean(dtype=np.float64)
    solved = np.linalg.solve(design.T @ design + 3 * np.eye(people + items), design.T @ (train.values - mean))
    wanted = mean + solved[test.people] + solved[people + test.items]
    assert predict_biases(DATA) == pytest.approx(wanted, abs=1e-3)
    without_ridge = np.linalg.lstsq(design, train.values - mean, rcond=None)[0]
    assert predict_biases(DATA) != pytest.approx(
        mean + without_ridge[test.people] + without_ridge[people + test.items], abs=1e-3
    )


def test_the_mean_is_of_the_training_ratings() -> None:
    found = measure_baselines(DATA).mean
    mean = DATA.train.values.mean(dtype=np.float64)
    assert found is not None
    assert predict_mean(DATA) == pytest.approx(np.full(DATA.test.values.size, mean))
    assert found.rmse.value == pytest.approx(float(np.sqrt(np.mean((mean - DATA.test.values) ** 2))))


def test_popularity_ranks_by_training_interactions() -> None:
    counts = np.array([np.count_nonzero(DATA.train.items == item) for item in range(DATA.train.item_count)], float)
    assert popularity(DATA.train).tolist() == counts.tolist()
    scores = np.broadcast_to(counts, (DATA.train.person_count, counts.size))
    assert values(measure_baselines(DATA, k=5).popularity) == pytest.approx(ranked_slowly(scores, DATA, 5))


def test_baselines_are_of_exactly_the_same_interactions() -> None:
    found = measure_baselines(DATA, strangers=20, seed=3)
    assert found.mean is not None
    assert found.biases is not None
    counts = {one.interactions for one in (found.mean, found.biases, found.popularity)}
    assert counts == {DATA.test.items.size}
    scores = popularity(DATA.train)
    again = measure_ranking(lambda people: np.tile(scores, (people.size, 1)), DATA, strangers=20, seed=3)
    assert again == found.popularity


def test_without_ratings_there_is_popularity_alone() -> None:
    implicit = Split(train=replace(DATA.train, implicit=True), test=DATA.test)
    found = measure_baselines(implicit).as_json()
    assert (found["mean"], found["biases"]) == (None, None)
    assert found["popularity"]["ndcg"]["value"] > 0
