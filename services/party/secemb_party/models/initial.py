"""The first version of a model, from a seed that both servers know."""

import numpy as np

from secemb_party.models.errors import WeightsError
from secemb_party.models.model import Floats, Model, Shape


def initial(
    task_id: bytes, shape: Shape, *, seed: int, scale: float, bias_column: bool, dense_scale: float = 0.0
) -> Model:
    """Return version 0: rows from N(0, scale²), zeros in the last column if it is a bias, N(0, dense_scale²) elsewhere.

    The numbers are float32 normals of NumPy's PCG64 generator with this seed, first the rows in C order without the
    bias column, then the dense part unless its scale is zero. Both servers draw for themselves and compare digests.
    NumPy promises the bits of PCG64 for ever but not what `standard_normal` makes of them: servers whose digests
    differ have different versions of NumPy, and one imports what the other has exported.
    A dense part with hidden layers needs a scale or imported weights: layers of zeros do not learn.
    """
    if seed < 0:
        raise WeightsError("the seed of the initial weights must be a whole number from 0 up")
    normals = np.random.Generator(np.random.PCG64(seed))
    rows = np.zeros((shape.items, shape.width), dtype=np.float32)
    drawn = shape.width - bias_column
    rows[:, :drawn] = _scaled(normals.standard_normal((shape.items, drawn), dtype=np.float32), scale)
    dense = np.zeros(shape.dense, dtype=np.float32)
    if dense_scale:
        dense = _scaled(normals.standard_normal(shape.dense, dtype=np.float32), dense_scale)
    return Model(task_id=task_id, version=0, rows=rows, dense=dense)


def check_scale(scale: float) -> None:
    """Refuse a scale that no model begins with."""
    if not 0 <= scale <= 1e6:
        raise WeightsError("the scale of the initial weights must be a number from 0 to 1,000,000")


def _scaled(normals: Floats, scale: float) -> Floats:
    check_scale(scale)
    normals *= np.float32(scale)
    return normals
