"""What a device adds to an evaluation: six numbers about ratings that it has never trained on."""

import math

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats, Model
from secemb_sdk.selection import Selection
from secemb_shared.randomness import Indices

FIRST_PLACES = 10  # k of the hit rate and of the gain


def measure(
    model: Model, private: Floats, selection: Selection, items: Indices, rows: Floats, dense: Floats
) -> npt.NDArray[np.float64]:
    """Return predictions, their squared and absolute errors, rankings, hits and gains; `rows[i]` is of `items[i]`."""
    scores = model.scores(rows, dense, private, items).astype(np.float64)
    values = selection.ratings_of(items).values.astype(np.float64)
    rated = ~np.isnan(values)
    errors = scores[rated] - values[rated]
    return np.array(
        [errors.size, np.dot(errors, errors), np.abs(errors).sum(), *_rank(selection, items, scores, rated)]
    )


def _rank(
    selection: Selection, items: Indices, scores: npt.NDArray[np.float64], rated: npt.NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Return whether there was a ranking, a hit, and its gain: of the first item among the strangers."""
    chosen = np.flatnonzero(items == selection.items[0]) if selection.items.size else np.empty(0)
    strangers = scores[~rated]
    if chosen.size == 0 or strangers.size == 0:
        return 0.0, 0.0, 0.0
    place = int(np.count_nonzero(strangers >= scores[chosen[0]]))  # who is equal stands before it
    hit = place < FIRST_PLACES
    return 1.0, float(hit), 1 / math.log2(place + 2) if hit else 0.0
