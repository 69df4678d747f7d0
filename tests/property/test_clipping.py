"""No update is longer than its limit once it is in the ring, whatever the model, the unit and the numbers."""

import math
from fractions import Fraction
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from secemb_sdk.errors import ModelError
from secemb_sdk.models import Floats, MatrixFactorisation, Model, NotFiniteLossError, Ratings, limits
from secemb_sdk.models.limits import Clip, clip_records, clip_sums, clip_update
from secemb_shared.messages.privacy import RECORD, USER, BudgetLine
from secemb_shared.privacy.clip import LARGEST_LIMIT, clip_each_to_steps, clip_to_steps, squared_length
from secemb_shared.ring import Ring

torch = pytest.importorskip("secemb_sdk.models.torch")

ITEMS, DIMENSION = 40, 4
FEATURES = np.random.default_rng(1).integers(0, 2, (ITEMS, 3), dtype=np.uint8)
MODELS: dict[str, Model] = {
    "mf": MatrixFactorisation(dimension=DIMENSION),
    "mf in torch": torch.TorchMatrixFactorisation(dimension=DIMENSION),
    "ncf": torch.NeuralCollaborativeFiltering(dimension=DIMENSION),
    "fm": torch.FactorisationMachine(
        user_features=FEATURES[0], item_features=FEATURES.__getitem__, dimension=DIMENSION
    ),
    "deepfm": torch.DeepFactorisationMachine(
        user_features=FEATURES[0], item_features=FEATURES.__getitem__, dimension=DIMENSION
    ),
}
RINGS = [Ring(), Ring(fraction_bits=8), Ring(bits=64, fraction_bits=30)]
FLOATS = st.floats(-1e6, 1e6, width=32)


def parts_of(model: Model, seed: int, scale: float) -> tuple[Floats, Floats, Floats, Ratings]:
    """Return rows, dense part, private part and ratings of some items."""
    random = np.random.default_rng(seed)
    items = random.choice(ITEMS, int(random.integers(1, 12)), replace=False)
    sizes = (items.size, model.row_width), (model.dense_size,), (model.private_size,)
    rows, dense, private = (random.normal(0, scale, size).astype(np.float32) for size in sizes)
    return rows, dense, private, Ratings(items, random.integers(1, 6, items.size).astype(np.float32))


def steps_of(ring: Ring, values: np.ndarray) -> np.ndarray:
    """Return what is added up in the ring, as signed whole numbers."""
    encoded = ring.encode(values)
    return encoded.view(np.int32 if ring.bits == 32 else np.int64).astype(np.int64)


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float32, st.integers(1, 60), elements=FLOATS),
    st.integers(1, 2**30),
    st.integers(0, 30),
    st.integers(0, 60),
)
def test_whole_steps_are_never_longer_than_the_limit(
    values: Floats, limit: int, fraction_bits: int, cut_at: int
) -> None:
    parts = clip_to_steps([values[:cut_at], values[cut_at:]], limit=limit, fraction_bits=fraction_bits)
    assert squared_length(parts) <= limit**2


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32)))
def test_what_is_short_enough_loses_less_than_a_step_of_each_element(values: Floats) -> None:
    (steps,) = clip_to_steps([values], limit=2**24, fraction_bits=16)
    assert np.abs(steps - values.astype(np.float64) * 2**16).max() < 1


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float64, st.integers(1, 60), elements=st.floats(-LARGEST_LIMIT, LARGEST_LIMIT)),
    st.integers(1, LARGEST_LIMIT),
)
def test_steps_are_rounded_towards_zero_to_the_last_bit(values: np.ndarray, limit: int) -> None:
    (steps,) = clip_to_steps([values], limit=limit, fraction_bits=0)
    length, most = float(np.sqrt(np.dot(values, values))), limit * (1 - 2.0**-20)
    scaled = values * (1.0 if length <= most else most / length)
    assert steps.tolist() == [math.trunc(value) for value in scaled.tolist()]


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 60), elements=FLOATS))
def test_what_is_too_long_keeps_its_direction_and_gets_the_whole_length(values: Floats) -> None:
    limit, exact = 10**6, values.astype(np.float64) * 2**16
    length = float(np.linalg.norm(exact))
    (steps,) = clip_to_steps([values], limit=limit, fraction_bits=16)
    wanted = exact * min(1.0, limit / length) if length else exact
    assert np.abs(steps - wanted).max() <= 2


def test_rounding_to_the_nearest_step_would_have_been_too_long() -> None:
    values = np.full(10_000, 0.6)
    limit = 60  # the length of the numbers, exactly
    assert squared_length([np.rint(values).astype(np.int64)]) > limit**2
    assert squared_length(clip_to_steps([values], limit=limit, fraction_bits=0)) <= limit**2


@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_users_update_is_within_the_limit_in_the_ring(name: str, ring: Ring, apart: bool) -> None:
    model = MODELS[name]
    for seed, scale in enumerate([0.01, 1.0, 10.0]):
        rows, dense, private, ratings = parts_of(model, seed, scale)
        found = model.gradients(rows, dense, private, ratings)
        clip = Clip(unit=USER, limit=5000, dense_limit=300 if apart else None, fraction_bits=ring.fraction_bits)
        steps = [steps_of(ring, part) for part in clip_update(found.rows, found.dense, clip)]
        if apart:
            assert squared_length(steps[:1]) <= 5000**2
            assert squared_length(steps[1:]) <= 300**2
        else:
            assert squared_length(steps) <= 5000**2
        assert squared_length(steps) > 0


@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_rating_more_or_less_changes_the_sum_by_no_more_than_the_limit(name: str, ring: Ring) -> None:
    model, clip = MODELS[name], Clip(unit=RECORD, limit=2000, fraction_bits=ring.fraction_bits)
    for seed, scale in enumerate([0.01, 1.0]):
        rows, dense, private, ratings = parts_of(model, seed + 10, scale)
        fewer = Ratings(ratings.items[1:], ratings.values[1:])
        whole = clip_records(model, rows, dense, private, ratings, clip)
        rest = clip_records(model, rows[1:], dense, private, fewer, clip)
        differences = [steps_of(ring, whole.rows)[:1], steps_of(ring, whole.dense) - steps_of(ring, rest.dense)]
        assert np.array_equal(steps_of(ring, whole.rows)[1:], steps_of(ring, rest.rows))
        assert 0 < squared_length(differences) <= 2000**2


def test_ratings_that_need_no_cut_add_up_to_the_devices_gradient() -> None:
    model = MatrixFactorisation(dimension=DIMENSION, person_penalty=0, bias_penalty=0)  # those count once per device
    rows, dense, private, ratings = parts = parts_of(model, 5, 0.1)
    clip = Clip(unit=RECORD, limit=2**40, fraction_bits=24)
    found, together = clip_records(model, rows, dense, private, ratings, clip), model.gradients(*parts)
    assert np.abs(found.rows - together.rows).max() < 1e-5


def test_with_max_in_place_of_min_a_long_update_would_pass() -> None:
    gradient, limit = np.full(100, 3.0), 10
    length = float(np.linalg.norm(gradient))
    of_the_paper = np.trunc(gradient * max(1.0, limit / length)).astype(np.int64)
    assert squared_length([of_the_paper]) > limit**2
    assert squared_length(clip_to_steps([gradient], limit=limit, fraction_bits=0)) <= limit**2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_without_a_length_is_refused(bad: float) -> None:
    with pytest.raises(NotFiniteLossError):
        clip_update(
            np.array([[1, bad]], np.float32), np.zeros(0, np.float32), Clip(unit=USER, limit=9, fraction_bits=8)
        )


def test_a_unit_that_is_unknown_is_refused() -> None:
    with pytest.raises(ModelError):
        Clip(unit="household", limit=1, fraction_bits=0)


def test_the_exact_length_is_exact() -> None:
    steps = np.array([2**40, -3, 1], dtype=np.int64)
    assert squared_length([steps]) == int(Fraction(2**80 + 10))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(0, 2**32),
    st.sampled_from([0.1, 1.0]),
    st.sampled_from([1, 2**8, 2**16]),
    st.sampled_from([None, 2**10]),
)
def test_many_gradients_at_once_add_up_to_what_one_at_a_time_do(
    name: str, seed: int, scale: float, size: int, dense_limit: int | None
) -> None:
    model, fraction_bits = MODELS[name], 12
    rows, dense, private, ratings = parts_of(model, seed, scale)
    clip = Clip(unit=RECORD, limit=2**14, dense_limit=dense_limit, fraction_bits=fraction_bits)
    one_by_one = clip_records(cast(Model, OneByOne(model)), rows, dense, private, ratings, clip)
    with patch.object(limits, "_TOGETHER", size):
        together = clip_records(model, rows, dense, private, ratings, clip)
    # Sums of floats in another order: now and then a number falls on the other side of a whole step.
    most = (2 + ratings.items.size) / 2**fraction_bits
    assert np.abs(together.rows - one_by_one.rows).max() <= most
    assert np.abs(together.dense - one_by_one.dense).max(initial=0) <= most
    assert together.trouble is one_by_one.trouble is None


class OneByOne:
    """A model that has to be asked for each rating alone."""

    def __init__(self, model: Model) -> None:
        self.gradients = model.gradients


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_rating_that_cannot_be_learned_from_takes_nothing_from_the_others(bad: float) -> None:
    model, clip = MatrixFactorisation(dimension=DIMENSION), Clip(unit=RECORD, limit=2**14, fraction_bits=12)
    rows, dense, private, ratings = parts_of(model, 3, 1.0)
    whole = clip_records(model, rows, dense, private, ratings, clip)
    rows[1, 0] = bad
    private[0] = 4.0
    expected = clip_records(model, np.delete(rows, 1, axis=0), dense, private, _without(ratings, 1), clip)
    found = clip_records(model, rows, dense, private, ratings, clip)
    assert not found.rows[1].any()
    assert np.array_equal(np.delete(found.rows, 1, axis=0), expected.rows)
    assert found.trouble == "NotFiniteLossError"
    assert whole.rows[1].any()
    assert whole.trouble is None


def test_a_model_that_fails_for_all_ratings_at_once_is_asked_for_each() -> None:
    class Moody(MatrixFactorisation):
        def record_gradients(self, *parts: Any) -> Any:
            raise RuntimeError("not today")

    clip = Clip(unit=RECORD, limit=2**14, fraction_bits=12)
    parts = parts_of(MODELS["mf"], 3, 1.0)
    expected = clip_records(cast(Model, OneByOne(MODELS["mf"])), *parts, clip)
    found = clip_records(Moody(dimension=DIMENSION), *parts, clip)
    assert np.array_equal(found.rows, expected.rows)


def _without(ratings: Ratings, place: int) -> Ratings:
    return Ratings(np.delete(ratings.items, place), np.delete(ratings.values, place))


@settings(max_examples=100, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(2, 20)), elements=FLOATS),
    st.integers(1, 2**30),
    st.integers(0, 30),
)
def test_many_vectors_are_cut_as_one_is(values: Floats, limit: int, fraction_bits: int) -> None:
    limits = {"limit": limit, "fraction_bits": fraction_bits}
    first, second = clip_each_to_steps([values[:, :1], values[:, 1:]], **limits)
    for place, vector in enumerate(values):
        (alone,) = clip_to_steps([vector], **limits)
        together = np.concatenate([first[place], second[place]])
        assert squared_length([together]) <= limit**2
        assert np.abs(together - alone).max() <= 1  # lengths are summed in another order


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float64, 6, elements=st.floats(0, 1e4)),
    arrays.arrays(np.float64, 6, elements=st.floats(0, 1e4)),
    st.integers(256, 2**24),
)
def test_a_rating_more_moves_what_a_device_says_by_less_than_two_parts(
    said: np.ndarray, more: np.ndarray, limit: int
) -> None:
    line = BudgetLine(clip=limit, multiplier="1", epsilon="1")
    before, after = (clip_sums(values, line) * 2.0**16 for values in (said, said + more))
    assert float(np.linalg.norm(before)) <= limit
    assert float(np.linalg.norm(after - before)) <= limit * 2**0.5


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["ncf", "fm", "deepfm"]), st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 30.0]))
def test_each_record_keeps_to_both_limits_where_parts_are_cut_apart(name: str, seed: int, scale: float) -> None:
    model, fraction_bits = MODELS[name], 12
    rows, dense, private, ratings = parts_of(model, seed, scale)
    one = Ratings(ratings.items[:1], ratings.values[:1])
    clip = Clip(unit=RECORD, limit=5000, dense_limit=700, fraction_bits=fraction_bits)
    found = clip_records(model, rows[:1], dense, private, one, clip)
    assert squared_length([np.rint(found.rows * 2**fraction_bits).astype(np.int64)]) <= 5000**2
    assert squared_length([np.rint(found.dense * 2**fraction_bits).astype(np.int64)]) <= 700**2
