"""What a model version is: its digest, its shape and its first weights."""

import hashlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.stored_models import OTHER_TASK, SHAPE, TASK, model

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    ModelError,
    ModelMissingError,
    WeightsError,
)
from secemb_party.storage import Model, ModelFiles, Shape, initial_model
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import TaskSpec

# What a model is.


def test_the_digest_is_the_hash_that_the_description_says() -> None:
    rows, dense = [[1.0, -2.5], [0.0, 3.25], [-0.0, 1e-40]], [0.5, -1.0]
    known = Model(
        task_id=TASK, version=7, rows=np.array(rows, dtype=np.float32), dense=np.array(dense, dtype=np.float32)
    )
    plain = b"secemb/1 model" + TASK + struct.pack("<QQQQ", 7, 3, 2, 2)
    plain += struct.pack("<6f", *[number for row in rows for number in row]) + struct.pack("<2f", *dense)
    assert known.digest == hashlib.sha256(plain).digest()
    assert known.digest.hex() == "3a8e93eb23c36adf8e1e1e083e5a5627e17db08667c8249c8d53c388e6e836b2"


def test_the_digest_covers_every_part() -> None:
    base = model(3)
    rows, dense = base.rows.copy(), base.dense.copy()
    rows[-1, -1], dense[-1] = 1, 1
    flipped = base.rows.copy()
    flipped[0, -1] = -0.0  # equal as a number, another model in bits
    others = [
        replace(base, version=4),
        replace(base, task_id=OTHER_TASK),
        replace(base, rows=rows),
        replace(base, rows=flipped),
        replace(base, dense=dense),
        replace(base, rows=base.rows.reshape(3, 7)),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 7


def test_the_digest_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    base = model()
    assert replace(base, rows=np.asfortranarray(base.rows)).digest == base.digest


def test_nobody_writes_to_a_model() -> None:
    rows, dense = np.zeros((7, 3), dtype=np.float32), np.zeros(4, dtype=np.float32)
    made = Model(task_id=TASK, version=0, rows=rows, dense=dense)
    for array in (made.rows, made.dense, rows, dense):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    "changes",
    [
        {"task_id": b"short"},
        {"version": -1},
        {"version": 2**53},
        {"rows": np.zeros((7, 3))},
        {"rows": np.zeros(21, dtype=np.float32)},
        {"rows": np.full((7, 3), np.nan, dtype=np.float32)},
        {"dense": np.zeros((2, 2), dtype=np.float32)},
        {"dense": np.full(4, -np.inf, dtype=np.float32)},
    ],
)
def test_what_is_no_model_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(WeightsError):
        replace(model(), **changes)


def test_the_shape_follows_from_the_task() -> None:
    task = TaskSpec(
        name="films",
        items=50,
        row_width=9,
        dense_size=11,
        capacity=10,
        tables=4,
        bins=4,
        ring_bits=32,
        fraction_bits=16,
        bound=2**16,
        cohort=10,
        min_cohort=2,
    )
    assert Shape.of(task) == Shape(items=50, width=9, dense=11)


def test_every_error_is_in_the_tree_of_the_product() -> None:
    for error in (WeightsError, ModelMissingError, ModelConflictError, DamagedFileError, ForeignFileError):
        assert issubclass(error, ModelError)
        assert issubclass(error, SecEmbError)


# Initial weights.


def test_two_servers_with_one_seed_start_from_one_digest(tmp_path: Path) -> None:
    digests = [ModelFiles(tmp_path / name, TASK, SHAPE).save(model(seed=9)) for name in ("server0", "server1")]
    assert digests[0] == digests[1]
    assert model(seed=10).digest != digests[0]


def test_the_initial_weights_of_a_seed_never_change() -> None:
    drawn = initial_model(
        TASK, Shape(items=1000, width=65, dense=33), seed=1, scale=0.01, bias_column=True, dense_scale=0.1
    )
    assert drawn.digest.hex() == "804637ba0538a4e75815dee333d17f71c711d057ce3fe4823405780fce277bad"


def test_the_initial_rows_are_normal_with_the_scale_and_the_bias_is_zero() -> None:
    shape = Shape(items=2000, width=65, dense=5000)
    drawn = initial_model(TASK, shape, seed=3, scale=0.01, bias_column=True, dense_scale=0.5)
    assert not drawn.rows[:, -1].any()
    assert drawn.rows[:, :-1].std() == pytest.approx(0.01, rel=0.02)
    assert abs(drawn.rows[:, :-1].mean()) < 1e-4
    assert drawn.dense.std() == pytest.approx(0.5, rel=0.05)
    assert drawn.version == 0


def test_without_a_bias_every_column_is_drawn_and_the_dense_part_is_zero_unless_asked_for() -> None:
    drawn = initial_model(TASK, SHAPE, seed=3, scale=0.01, bias_column=False)
    assert drawn.rows.all()
    assert not drawn.dense.any()


@pytest.mark.parametrize(
    "changes", [{"seed": -1}, {"scale": -0.1}, {"scale": np.nan}, {"scale": np.inf}, {"dense_scale": np.nan}]
)
def test_a_seed_or_scale_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WeightsError):
        initial_model(TASK, SHAPE, **{"seed": 1, "scale": 0.01, "bias_column": True, **changes})
