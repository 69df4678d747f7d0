"""What holds for every round: devices read the exact bits, and the two shares add up to the plain sum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sessions import (
    EACH_BACKEND,
    bit_table,
    both_keys,
    direct,
    make_devices,
    make_round,
    make_task,
    planned,
    play,
    random_ring,
    rng_of,
    seeded,
)

from secemb_shared.dpf import Backend
from secemb_shared.dpf._portable import convert_eval
from secemb_shared.messages import TaskSpec


@st.composite
def tasks(draw: st.DrawFn) -> TaskSpec:
    """Draw a task: the paper's layout, bins from far too few to one for each item, or what the planner says."""
    items = draw(st.integers(1, 60) | st.just(261))
    capacity = draw(st.integers(1, min(items, 9)))
    bits = draw(st.sampled_from([24, 32, 64]))
    common = {
        "items": items,
        "capacity": capacity,
        "row_width": draw(st.integers(1, 18)),
        "dense_size": draw(st.integers(0, 9)),
        "ring_bits": bits,
        "row_bits": draw(st.sampled_from([16, 32])),
        "fraction_bits": draw(st.integers(0, 20)),
        "cohort": 5,
    }
    layout = draw(st.sampled_from(["direct", "binned", "planned"]))
    if layout == "direct":
        return direct(**common)
    if layout == "planned":
        return planned(**common)
    return make_task(**common, tables=draw(st.integers(1, 4)), bins=draw(st.integers(1, min(items, 9))))


@EACH_BACKEND
@given(task=tasks(), count=st.integers(2, 5), seed=st.integers(0, 2**32), number=st.integers(0, 2**53 - 1))
@settings(max_examples=60)
def test_rows_come_back_exactly_and_sums_are_exact(
    backend: Backend, task: TaskSpec, count: int, seed: int, number: int
) -> None:
    table, devices = bit_table(task, seed), make_devices(task, count, seed)
    played = play(make_round(task, number=number), table, devices, backend, seeded(seed))
    for device, (items, rows) in zip(devices, played.reads, strict=True):
        assert set(items.tolist()) <= set(device.items.tolist())
        assert rows.tobytes() == table[items].tobytes()
    assert np.array_equal(played.rows, played.expected_rows)
    assert np.array_equal(played.dense, played.expected_dense)


@EACH_BACKEND
@given(depth=st.integers(0, 9), width=st.integers(1, 20), bits=st.sampled_from([32, 64]), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_shares_add_up_for_every_leaf(backend: Backend, depth: int, width: int, bits: int, seed: int) -> None:
    rng = rng_of(seed)
    slots = int(rng.integers(1, 7))
    alpha = rng.integers(0, 2**depth, size=slots)
    held0, held1, leaf0, leaf1 = both_keys(backend, alpha, depth, seed)
    payload, key = random_ring(rng, (slots, width), bits), rng.bytes(16)
    words = backend.convert_gen(key, leaf0, leaf1, payload)
    shares = [convert_eval(key, held.party, backend.expand(held, 2**depth), words) for held in (held0, held1)]
    expected = np.zeros((2**depth, slots, width), dtype=payload.dtype)
    expected[alpha, np.arange(slots)] = payload
    assert np.array_equal(shares[0] + shares[1], expected)
