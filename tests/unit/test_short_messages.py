"""Rows in half precision and the ring of 24 bits: what they round, what they keep, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import make_task

from secemb_party.errors import StateError, WeightsError
from secemb_party.storage import Model, ModelFiles, Shape, first_model
from secemb_party.storage.model import check_shape
from secemb_server0.gradient import Gradient
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.errors import OverflowBudgetError, SpecError
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.norm import NormShape
from secemb_shared.ring import Ring
from secemb_shared.row_words import HALF, as_words, from_words, published, words_of
from secemb_tools.specification import build_task, fraction_bits_of

SMALL = Ring(24, 12)
TASK = make_task(row_bits=HALF, initial_scale="0.1")
ELEMENTS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20)


@given(ELEMENTS)
def test_an_element_of_24_bits_is_three_bytes_and_means_the_same_whatever_is_above_them(words: list[int]) -> None:
    elements = np.array(words, dtype=np.uint32)
    packed = SMALL.pack(elements)
    assert bytes(packed) == b"".join((word % 2**24).to_bytes(3, "little") for word in words)
    assert np.array_equal(SMALL.unpack(packed), SMALL.reduce(elements))
    assert SMALL.signed(elements).tolist() == [(word + 2**23) % 2**24 - 2**23 for word in words]
    assert np.array_equal(SMALL.decode(elements), SMALL.decode(SMALL.unpack(packed)))


def test_24_bits_hold_half_of_what_25_would() -> None:
    assert SMALL.encode([2048 - 2.0**-12, -2048.0, -(2.0**-12)]).tolist() == [2**23 - 1, 2**23, 2**24 - 1]
    with pytest.raises(OverflowBudgetError):
        SMALL.check_budget(cohort=1000, bound=8389)
    SMALL.check_budget(cohort=1000, bound=8388)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_published_rows_do_not_change_when_they_are_published_again_or_read(values: list[float]) -> None:
    rows = published(np.array([values], dtype=np.float32), HALF)
    assert published(rows, HALF).tobytes() == rows.tobytes()
    words = as_words(rows, HALF)
    assert words.shape == (1, words_of(len(values), HALF))
    assert from_words(words, len(values), HALF).tobytes() == rows.tobytes()
    assert np.abs(rows).max() <= 65504


def test_the_optimiser_moves_rows_in_full_precision_and_publishes_them_rounded() -> None:
    """Steps of 2^-15 are too small for a half near one: only kept in full do they ever add up."""
    settings: dict[str, Any] = {
        "optimiser": "sgd",
        "row_rate": "1",
        "bias_rate": "1",
        "guard": "0",
        "schedule": "constant",
    }
    half, full = (make_task(**settings, row_bits=bits, initial_scale="0") for bits in (16, 32))
    start = Model(
        task_id=half.task_id, version=0, rows=np.ones((23, 5), np.float32), dense=np.zeros(3, dtype=np.float32)
    )
    gradient = Gradient(rows=np.full((23, 5), 2.0**-15), dense=np.zeros(3))
    optimiser, plain = make_optimiser(half), make_optimiser(full)
    rounded, exact = start, replace(start, task_id=full.task_id)
    for step in range(1, 65):
        rounded, exact = optimiser.step(rounded, gradient), plain.step(exact, gradient)
        assert rounded.rows.tobytes() == published(exact.rows, HALF).tobytes()
        assert exact.rows[0, 0] == 1 - step * 2.0**-15
    assert rounded.rows[0, 0] == 1 - 2.0**-9
    once_more = make_optimiser(half)
    once_more.restore(optimiser.state())
    assert once_more.step(rounded, gradient).digest == optimiser.step(rounded, gradient).digest


def test_a_step_in_blocks_stores_the_same_rows_rounded_and_not(tmp_path: Path) -> None:
    store, model = ModelFiles(tmp_path, TASK.task_id, Shape.of(TASK)), first_model(TASK)
    random = np.random.default_rng(3)
    optimiser, state = make_optimiser(TASK), None
    store.save(model)
    for _ in range(3):
        gradient = Gradient(rows=random.normal(size=model.rows.shape), dense=random.normal(size=model.dense.size))
        blockwise = make_optimiser(TASK)
        if state is not None:
            blockwise.restore(state, copy=False)
        stored = store.save_step(blockwise.step_in_blocks(store.load(model.version), gradient))
        model, state = optimiser.step(model, gradient), store.load_state()
        assert state is not None
        assert stored.digest == model.digest
        assert state.digest == optimiser.state().digest


def test_exact_rows_of_another_model_or_task_are_refused_and_lost_ones_begin_as_published() -> None:
    optimiser, model = make_optimiser(TASK), first_model(TASK)
    gradient = Gradient(rows=np.full(model.rows.shape, 0.5), dense=np.zeros(model.dense.size))
    moved, state = optimiser.step(model, gradient), optimiser.state()
    lost = {name: one for name, one in state.tensors.items() if name != "rows_exact"}
    again = make_optimiser(TASK)
    again.restore(replace(state, tensors=lost))
    assert again.step(moved, gradient).version == 2
    with pytest.raises(StateError, match="rounded rows"):
        make_optimiser(make_task()).restore(state)
    others = make_optimiser(TASK)
    others.restore(replace(state, tensors={**state.tensors, "rows_exact": state.tensors["rows_exact"] + 1}))
    with pytest.raises(StateError, match="other rows"):
        others.step(moved, gradient)


def test_a_model_that_devices_would_read_otherwise_is_refused() -> None:
    model = first_model(TASK)
    check_shape(model, Shape.of(TASK))
    rows = model.rows.copy()
    rows[3, 2] = np.nextafter(rows[3, 2], np.float32(9))
    with pytest.raises(WeightsError, match="16 bits"):
        check_shape(replace(model, rows=rows), Shape.of(TASK))


def test_a_task_says_only_what_is_unusual_and_keeps_its_id_otherwise() -> None:
    usual = make_task()
    assert b"row_bits" not in usual.encode()
    assert b'"row_bits":16' in TASK.encode()
    assert TaskSpec.decode(TASK.encode()) == TASK
    with pytest.raises(SpecError, match="left out"):
        TaskSpec.decode(TASK.encode().replace(b'"row_bits":16', b'"row_bits":32'))


def test_the_two_options_halve_the_download_and_save_a_fifth_of_the_upload() -> None:
    """The bars of MovieLens-1M, without verifiable keys and norm proofs: 98 kB up and 46 kB down."""
    task = build_task(
        name="ML1M", items=3883, row_width=65, capacity=300, ring_bits=24, fraction_bits=12, row_bits=HALF,
        bound=2**13, cohort=1000,
    )  # fmt: skip
    sizes, proof = Sizes.of(task), task.norm_shape
    assert proof is not None
    checks = 48 * task.geometry.slots + 96 + proof.share_bytes
    assert sizes.relayed_upload - checks <= 98_000
    assert sizes.relayed_download <= 46_000


def test_a_ring_of_24_bits_never_gives_up_the_norm_proof_by_itself() -> None:
    """The default bound is as large as can be proved; where that would affect honest devices, the operator must say."""
    sizes: dict[str, Any] = {"name": "x", "items": 3883, "row_width": 65, "ring_bits": 24, "bound": 2**10, "cohort": 99}
    assert build_task(**sizes, capacity=300, fraction_bits=12).norm_bound == NormShape.largest_bound(24) == 2**19
    for refused in ({"capacity": 3000}, {"dense_size": 9, "capacity": 300}):
        with pytest.raises(SpecError, match="norm bound of 0"):
            build_task(**sizes | {"fraction_bits": 12} | refused)
        assert build_task(**sizes | {"fraction_bits": 12} | refused, norm_bound=0).norm_shape is None
    for capacity, dense in ((300, 0), (900, 0), (300, 9), (4000, 9)):
        bits = fraction_bits_of(24, capacity=min(3883, capacity), dense_size=dense)
        task = build_task(**sizes, capacity=min(3883, capacity), dense_size=dense, fraction_bits=bits)
        assert task.norm_shape is not None
        assert (bits == 12) == (capacity == 300 and not dense)
