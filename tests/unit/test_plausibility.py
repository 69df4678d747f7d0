"""Sums that honest devices cannot add up to are found, and those that they can never are."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import make_round, make_task

from secemb_party.evaluation import Share, blur
from secemb_sdk.models.limits import clip_sums
from secemb_sdk.round.measure import _differences, _errors, _rankings, rank
from secemb_sdk.round.upload import survey
from secemb_server0.figures import read_evaluations
from secemb_server0.plausibility import find_impossible, largest_element, measure_update
from secemb_server0.reconstruct import read_sums, suggest_capacity
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.measures import SUM_NAMES, EvaluationSums, EventSums, most_held_out
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import BPR, EVALUATE, NEXT, SURVEY
from secemb_shared.secure_sum import SUM_RING

Doubles = npt.NDArray[np.float64]
NOISE = Privacy(
    unit="user",
    delta="0.000001",
    train=BudgetLine(clip=1000, multiplier="1", epsilon="5"),
    survey=BudgetLine(clip=400 << 16, multiplier="1", epsilon="5"),
    evaluate=BudgetLine(clip=40 << 16, multiplier="1", epsilon="5"),
)
TASK = make_task(
    items=6000,
    capacity=60,
    dense_size=3,
    bound=100,
    cohort=40,
    centre="3",
    spread="1",
    lowest="1",
    highest="5",
)
SESSIONS = 4


def round_of(kind: str, task: TaskSpec = TASK) -> RoundSpec:
    return replace(make_round(task), kind=kind)


# Training.


def a_sum(round_: RoundSpec, value: int, *, part: str = "rows") -> Share:
    share = Share.empty(round_)
    numbers = getattr(share, part).reshape(-1)
    numbers[-1] = np.array([value]).astype(np.int64).astype(numbers.dtype)[0]
    return share


@pytest.mark.parametrize("ring_bits", [24, 32, 64])
@pytest.mark.parametrize("part", ["rows", "dense"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_element_that_the_sessions_cannot_add_up_to_is_found(ring_bits: int, part: str, sign: int) -> None:
    bound = min(TASK.bound, 2 ** (ring_bits - 2) // TASK.cohort)
    round_ = make_round(replace(TASK, ring_bits=ring_bits, bound=bound))
    limit = SESSIONS * bound
    for value, impossible in ((limit, False), (limit + 1, True), (round_.task.ring.half - 1, True)):
        sizes = measure_update(round_, a_sum(round_, sign * value, part=part), SESSIONS)
        assert [size.part for size in sizes if size.impossible] == ([part] if impossible else [])
    lowest = measure_update(round_, a_sum(round_, -round_.task.ring.half, part=part), SESSIONS)
    assert any(size.impossible for size in lowest)  # there is no positive number as large


def test_random_words_of_one_session_are_always_found() -> None:
    """One session with random correction words turns all rows into uniform elements of the ring."""
    nearly_full = replace(TASK, bound=(2**31 - 1) // TASK.cohort)  # hardly any element is beyond the limit
    round_, rng = make_round(nearly_full), np.random.default_rng(1)
    share = Share.empty(round_)
    share.rows[:] = rng.integers(0, 2**32, share.rows.shape, dtype=np.uint32)
    sessions = TASK.cohort * 9 // 10
    assert any(size.impossible for size in measure_update(round_, share, sessions))


def test_noise_alone_is_never_impossible() -> None:
    round_ = make_round(replace(TASK, privacy=NOISE, fraction_bits=8, bound=1000))
    share = Share.empty(round_)
    for _ in range(2):
        blur(round_, share)
    sizes = measure_update(round_, share, SESSIONS)
    assert 0.0 < max(size.fullness for size in sizes) < 0.5
    beyond = a_sum(round_, SESSIONS * 1000 + NOISE.rows.tail + 1)
    assert any(size.impossible for size in measure_update(round_, beyond, SESSIONS))


def test_the_limit_follows_from_bound_and_clip() -> None:
    noisy = replace(TASK, privacy=NOISE)
    assert largest_element(TASK, "rows") == 100
    assert largest_element(noisy, "rows") == 100  # the smaller of the two
    assert largest_element(replace(noisy, bound=5000), "rows") == 1000
    apart = replace(noisy, bound=5000, privacy=replace(NOISE, dense_clip=700))
    assert (largest_element(apart, "rows"), largest_element(apart, "dense")) == (1000, 700)
    records = replace(noisy, bound=50_000, privacy=replace(NOISE, unit="record"))
    assert largest_element(records, "rows") == 50_000  # of 60 records, 1,000 each
    assert largest_element(replace(records, bound=70_000), "rows") == 60_000


def test_the_norm_is_that_of_the_mean_update() -> None:
    round_ = make_round(TASK)
    share = Share.empty(round_)
    share.rows[0, 0], share.rows[1, 0] = 3 << 4, -(4 << 4) & 0xFFFFFFFF
    rows, dense = measure_update(round_, share, SESSIONS)
    assert rows.norm == pytest.approx((5 << 4) / 2**TASK.fraction_bits / SESSIONS)
    assert dense.norm == 0


# Evaluations and surveys.

ratings = st.lists(st.sampled_from([1.0, 2.5, 3.0, 4.0, 5.0]), min_size=0, max_size=most_held_out(TASK.capacity))


def an_evaluation(values: list[float], rng: np.random.Generator, *, privacy: bool = False) -> Doubles:
    """Return what an honest device measures, with the device's own code; predictions are as bad as they can be."""
    known = np.array(values) - 3
    numbers: dict[str, float] = {}
    if known.size:
        numbers |= _errors(known, rng.choice([-2.0, 0.3, 2.0], known.size), rng.choice([-2.0, 2.0], known.size))
        scores = rng.standard_normal(known.size + 20)
        numbers |= _rankings(rank(scores[: known.size], scores[known.size :], 10), rank(scores[:1], scores[1:], 10))
    numbers |= {} if privacy else _differences(numbers, TASK.capacity)
    return EvaluationSums(**numbers).numbers()


def added(vectors: list[Doubles]) -> list[float]:
    total = np.zeros(vectors[0].size, np.uint64)
    for one in vectors:
        total += SUM_RING.encode(one)
    share = Share(np.zeros((0, 1), np.uint32), np.zeros(0, np.uint32), total)
    return read_sums(share)


@given(st.lists(ratings, min_size=2, max_size=8), st.integers(0, 2**32))
def test_honest_evaluations_are_always_possible(devices: list[list[float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums = added([an_evaluation(values, rng) for values in devices])
    assert find_impossible(round_of(EVALUATE), sums, len(devices)) is None


@given(st.lists(ratings, min_size=2, max_size=8), st.integers(0, 2**32))
def test_honest_evaluations_with_noise_are_always_possible(devices: list[list[float]], seed: int) -> None:
    rng, noisy = np.random.default_rng(seed), replace(TASK, privacy=NOISE)
    assert NOISE.evaluate is not None
    vectors = [clip_sums(an_evaluation(values, rng, privacy=True), NOISE.evaluate) for values in devices]
    mechanism = NOISE.sums(EVALUATE)
    assert mechanism is not None
    noise = rng.normal(0, (2 * mechanism.variance) ** 0.5, len(SUM_NAMES)) / 2**16
    assert find_impossible(round_of(EVALUATE, noisy), (np.array(added(vectors)) + noise).tolist(), len(devices)) is None


@given(
    st.lists(st.integers(0, 6000), min_size=2, max_size=8),
    st.sampled_from([1.0, 3.0, 5.0]),
    st.sampled_from([TASK, replace(TASK, items=6001, lowest="", highest=""), replace(TASK, loss=BPR)]),
)
def test_honest_surveys_are_always_possible(counts: list[int], rating: float, task: TaskSpec) -> None:
    vectors = [survey(np.full(count, rating - 3, np.float32)) for count in counts]
    assert find_impossible(round_of(SURVEY, task), added(vectors), len(counts)) is None


def honest(kind: str) -> list[Doubles]:
    rng = np.random.default_rng(3)
    if kind == EVALUATE:
        return [an_evaluation([4.0, 2.5, 5.0], rng) for _ in range(SESSIONS - 1)]
    return [survey(np.ones(100, np.float32)) for _ in range(SESSIONS - 1)]


def lied(kind: str, **changes: float) -> list[float]:
    """Return the sums where one of four devices lies in these numbers, and says what an honest one says in others."""
    names = SUM_NAMES if kind == EVALUATE else ("items", "above", "below", "squares", *(f"kept_{n}" for n in KEPT))
    lie = honest(kind)[0].copy()
    for name, value in changes.items():
        lie[names.index(name)] = value
    return added([*honest(kind), lie])


KEPT = [2**power for power in range(3, 13)]


@pytest.mark.parametrize(
    "lie",
    [
        {"predictions": 1.5e6},  # RMSE 0.0016
        {"squared": 1.5e7},  # RMSE 1,500
        {"squared": -100.0},
        {"predictions": SESSIONS * most_held_out(TASK.capacity)},
        {"absolute": 300.0},
        {"biases": 1e6},
        {"above": 1e4},
        {"below": 1e4},
        {"spread": 1e4},
        {"rankings": 5.0},
        {"hits": 9.0, "rankings": 1.0},
        {"recall": 7.0},
        {"ndcg": 7.0},
        {"reciprocal": 7.0},
        {"popular_ndcg": 7.0},
        {"recall_2": 7.0},
        {"predictions_2": 100.0},
        {"both": 1e5},
        {"squared_2": 1e5},
    ],
)
def test_a_lie_that_no_fleet_could_tell_discards_the_evaluation(lie: dict[str, float]) -> None:
    assert find_impossible(round_of(EVALUATE), lied(EVALUATE), SESSIONS) is None
    assert find_impossible(round_of(EVALUATE), lied(EVALUATE, **lie), SESSIONS) is not None


@pytest.mark.parametrize(
    "lie",
    [
        {"items": 1e6},
        {"items": 5000.0},  # but what smaller capacities keep stays as it is
        {"items": -300.0},
        {"kept_4096": 5000.0, "items": 6000.0},
        {"kept_8": 64.0},
        {"kept_512": 0.0},
        {"above": 5000.0},
        {"squares": 5000.0},
    ],
)
def test_a_lie_that_no_fleet_could_tell_discards_the_survey(lie: dict[str, float]) -> None:
    assert find_impossible(round_of(SURVEY), lied(SURVEY), SESSIONS) is None
    assert find_impossible(round_of(SURVEY), lied(SURVEY, **lie), SESSIONS) is not None


def test_what_one_of_four_devices_can_still_move_is_bounded() -> None:
    """docs/threat-model.md names these: a lie within the range of all sessions together is not found."""
    room = SESSIONS * most_held_out(TASK.capacity) - 3 * (SESSIONS - 1)
    base = {"predictions_2": 0.0, "both": 0.0, "squared_2": 0.0}
    errors = added(honest(EVALUATE))[SUM_NAMES.index("squared")]
    spread = {name: -added(honest(EVALUATE))[SUM_NAMES.index(name)] for name in ("both", "squared_2")}
    perfect = lied(EVALUATE, squared=-errors, predictions_2=0.0, **spread)  # numbers below zero fit the ring
    worst = lied(EVALUATE, predictions=room, squared=16.0 * room, absolute=4.0 * room, **base)
    truth = read_evaluations(TASK, [lied(EVALUATE)])["rmse"]
    for sums in (perfect, worst):
        assert find_impossible(round_of(EVALUATE), sums, SESSIONS) is None
    low, high = (read_evaluations(TASK, [sums])["rmse"] for sums in (perfect, worst))
    assert low == 0 < truth < high <= 4.0  # the width of the scale
    huge = added([*honest(SURVEY), survey(np.zeros(TASK.items, np.float32))])
    assert find_impossible(round_of(SURVEY), huge, SESSIONS) is None
    assert suggest_capacity(huge[0], huge[4:], TASK.items) == 4096


def test_without_the_ends_of_the_scale_errors_have_no_limit() -> None:
    endless = replace(TASK, lowest="", highest="")
    assert find_impossible(round_of(EVALUATE, endless), lied(EVALUATE, squared=1e6), SESSIONS) is None


def test_a_task_without_ratings_has_no_predictions() -> None:
    choices, sums = replace(TASK, loss=BPR), [0.0] * len(SUM_NAMES)
    assert find_impossible(round_of(EVALUATE, choices), sums, SESSIONS) is None
    sums[SUM_NAMES.index("predictions")] = 4.0
    assert find_impossible(round_of(EVALUATE, choices), sums, SESSIONS) is not None


@pytest.mark.parametrize(
    ("lie", "wrong"),
    [
        ({}, None),
        ({"rankings": 5.0}, "rankings"),
        ({"whole_hits": 5.0}, "whole_hits"),
        ({"popular_whole_ndcg": 5.0}, "popular_whole_ndcg"),
        ({"whole_ndcg_2": 1.5}, "whole_ndcg_2"),
        ({"surprise": -1.0}, "surprise"),
    ],
)
def test_a_lie_about_events_discards_the_evaluation(lie: dict[str, float], wrong: str | None) -> None:
    honest_sums = {"rankings": 4.0, "hits": 4.0, "whole_hits": 3.0, "whole_ndcg": 1.0, "whole_ndcg_2": 0.5}
    sums = EventSums(**(honest_sums | {"surprise": 20.0, "surprise_2": 120.0} | lie)).numbers().tolist()
    found = find_impossible(round_of(EVALUATE, replace(TASK, loss=NEXT)), sums, 4)
    assert found is None if wrong is None else (found or "").startswith(f"{wrong} is")
