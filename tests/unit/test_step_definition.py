"""The servers' step is what section 14.8 of the protocol defines, read number by number in single operations."""

import math
from typing import Any

import numpy as np
import pytest

from secemb_party.storage import Model
from secemb_server0.descent import Adam, LazyAdam, Momentum, Sgd
from secemb_server0.gradient import Gradient
from secemb_server0.optimiser import Optimiser, Rates

f32 = np.float32
ROUNDS, STEPS, ROWS, WIDTH, DENSE = 90, 66, 3, 4, 5  # past the 64th step, in which Adam sweeps
RATES = Rates(rows=0.02, dense=0.001, biases=0.05, row_decay=0.03, bias_decay=0.0, rounds=ROUNDS)
OPTIMISERS: dict[str, type[Optimiser]] = {"sgd": Sgd, "momentum": Momentum, "adam": Adam, "lazy-adam": LazyAdam}


def rate(part: str, column: int, before: int) -> Any:
    chosen = RATES.dense if part == "dense" else RATES.bias_rate if column == WIDTH - 1 else RATES.rows
    return f32(chosen * ((1 + math.cos(math.pi * min(before / ROUNDS, 1))) / 2))


def moved(kind: str, w: Any, g: Any, eta: Any, kept: dict[str, Any], t: int) -> Any:
    """Return one number after step t; `kept` is what the optimiser remembers of it."""
    if kind == "sgd":
        return w - g * eta
    if kind == "momentum":
        kept["m"] = kept.get("m", f32(0)) * f32(0.9) + g
        return w - kept["m"] * eta
    m, v = kept.get("m", f32(0)), kept.get("v", f32(0))
    m = m + (g - m) * f32(0.1)
    v = v * f32(0.999) + (g * g) * f32(1 - 0.999)
    if t % 64 == 0:
        m, v = (f32(0) if abs(m) < 1e-30 else m), (f32(0) if v < 1e-36 else v)
    kept.update(m=m, v=v)
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    return w - (m / (np.sqrt(v) + f32(1e-8 * math.sqrt(c2)))) * (eta * f32(math.sqrt(c2) / c1))


def decay(part: str, column: int) -> Any:
    return f32(0) if part == "dense" else f32(RATES.bias_decay if column == WIDTH - 1 else RATES.row_decay)


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_step_is_what_the_protocol_defines(kind: str) -> None:
    rng = np.random.default_rng(14)
    model = Model(
        task_id=bytes(32),
        version=0,
        rows=rng.normal(0, 0.1, (ROWS, WIDTH)).astype(np.float32),
        dense=rng.normal(0, 0.1, DENSE).astype(np.float32),
    )
    expected = {"rows": model.rows.copy(), "dense": model.dense.copy()[None]}
    kept: dict[tuple[str, int, int], dict[str, Any]] = {}
    optimiser = OPTIMISERS[kind](RATES)
    for t in range(1, STEPS + 1):
        rows, dense = rng.normal(0, 0.01, (ROWS, WIDTH)), rng.normal(0, 0.01, DENSE)
        rows[0] = 0 if t > 1 else rows[0]  # a row that nobody touches again still moves by its moments, but not if lazy
        rows[1, 1:] = 0  # a row is touched if one of its numbers is not zero
        touched = np.asarray(rows.any(axis=1))
        for part, gradient in (("rows", rows), ("dense", dense[None])):
            for (row, column), slope in np.ndenumerate(gradient):
                if kind == "lazy-adam" and part == "rows" and not touched[row]:
                    continue
                w, memory = expected[part][row, column], kept.setdefault((part, row, column), {})
                g = f32(slope) if part == "dense" else f32(slope) + w * decay(part, column)
                expected[part][row, column] = moved(kind, w, g, rate(part, column, t - 1), memory, t)
        model = optimiser.step(model, Gradient(rows=rows, dense=dense))
    assert np.array_equal(model.rows.view(np.uint32), expected["rows"].view(np.uint32))
    assert np.array_equal(model.dense.view(np.uint32), expected["dense"][0].view(np.uint32))
