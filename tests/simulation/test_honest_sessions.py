"""Honest sessions pass both checks, whatever they read and write: in all layouts and rings, with noise and without."""

import os
from itertools import product

import numpy as np
import pytest
from tests.unit.sessions import bit_table, direct, make_round, make_task, rng_of

from secemb_party.evaluation import Evaluation, KeysMessage, SessionBodies, Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.norm import agree
from secemb_shared.privacy.clip import clip_to_steps

SESSIONS = 100_000 if os.environ.get("SOAK_TESTS") else 400  # over all tasks
BOUND = 4096
NOISE = Privacy(unit="user", delta="0.00001", train=BudgetLine(clip=BOUND, multiplier="4", epsilon="100"))
SHAPES = {"binned": make_task, "direct": direct}
TASKS = {
    f"{layout}, {bits} bits, dense part of {dense}, {'noise' if privacy else 'exact'}": SHAPES[layout](
        ring_bits=bits, fraction_bits=8, bound=2**13, dense_size=dense, privacy=privacy, norm_bound=BOUND + 1, cohort=4
    )
    for layout, bits, dense, privacy in product(SHAPES, (32, 64), (0, 3), (None, NOISE))
}


def vectors(rng: np.random.Generator, task: TaskSpec, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an update of any length up to the bound, many of exactly that: all numbers alike, one alone, or random."""
    shape = count, task.row_width
    rows, dense = [
        (rng.normal(size=shape), rng.normal(size=task.dense_size)),
        (np.ones(shape), np.ones(task.dense_size)),
        (np.eye(*shape), np.zeros(task.dense_size)),
    ][rng.integers(3)]
    length = np.sqrt((rows**2).sum() + (dense**2).sum()) or 1.0
    times = rng.choice([0.0, 1e-3, 0.5, 1.0, 5.0]) * BOUND / 2**task.fraction_bits / length
    steps = clip_to_steps([rows * times, dense * times], limit=BOUND, fraction_bits=task.fraction_bits)
    return steps[0] / 2.0**task.fraction_bits, steps[1] / 2.0**task.fraction_bits


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_honest_sessions_always_pass(task: TaskSpec) -> None:
    assert task.norm_shape is not None
    rng, round_ = rng_of(SESSIONS), make_round(task)
    table = bit_table(task)
    key = rng.bytes(16)
    parties = [Evaluation.prepare(round_, party, table, check_key=key) for party in (0, 1)]
    for _ in range(SESSIONS // len(TASKS)):
        items = rng.permutation(task.items)[: rng.integers(0, task.capacity + 1)]
        device = DeviceSession(round_, items, random_bytes=rng.bytes)
        answers = [
            one.accept([KeysMessage(device.session_id, keys)])[0]
            for one, keys in zip(parties, device.keys, strict=True)
        ]
        assert answers[0][1] == answers[1][1]
        placed, _ = device.read((answers[0][0], answers[1][0]))
        rows, dense = vectors(rng, task, placed.size)
        updates = device.write(placed, rows, dense)
        shares = Share.empty(round_), Share.empty(round_)
        told = [
            one.add([SessionBodies(device.session_id, keys, update)], share)[0]
            for one, keys, update, share in zip(parties, device.keys, updates, shares, strict=True)
        ]
        assert agree(task.norm_shape, told[0], told[1])
        total = task.ring.decode((shares[0] + shares[1]).rows)
        assert np.array_equal(total[placed], rows)  # its own update, and not the zeros of one that was too long
