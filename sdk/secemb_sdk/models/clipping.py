"""Updates cut to the length that a task's privacy allows: g · min{1, Δ/‖g‖}.

    user     one length for all that a device uploads: rows and dense part together, or each with a limit of its own
    record   one length for what each rating adds; a device uploads the sum over its ratings
    sums     one length for what a device adds to a survey or an evaluation, whatever the unit

Lengths hold exactly for what is encoded, because the cut is made in whole steps of the ring. Record by record the steps
are added up as whole numbers: a rating more or less then changes the sum by its own steps and by nothing else. (The
paper writes max for min, which would let large gradients pass and blow up small ones: docs/adr/0010.)
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.models.errors import ModelError, NotFiniteLossError
from secemb_sdk.models.interface import Floats, Model, Ratings
from secemb_shared.errors import NotFiniteError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.privacy import RECORD, USER, BudgetLine
from secemb_shared.privacy.clipping import Steps, clip_to_steps
from secemb_shared.secure_sum import SUM_RING

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """How long an update may be, in the ring's smallest steps."""

    unit: str
    limit: int  # of rows and dense part together, or of the rows alone
    dense_limit: int | None = None  # of the dense part, where it has a limit of its own
    fraction_bits: int

    def __post_init__(self) -> None:
        if self.unit not in (USER, RECORD):
            raise ModelError("updates are clipped for each user or for each record")

    @classmethod
    def of(cls, task: TaskSpec) -> "Clip | None":
        """Return the limits of a task's training rounds; a task without noise has none."""
        privacy = task.privacy
        if privacy is None:
            return None
        return cls(
            unit=privacy.unit,
            limit=privacy.train.clip,
            dense_limit=privacy.dense_clip or None,
            fraction_bits=task.fraction_bits,
        )


def clip_update(rows: Floats, dense: Floats, clip: Clip) -> tuple[Doubles, Doubles]:
    """Return a device's whole update within the limits; the numbers are whole steps, so that encoding loses nothing."""
    by_row, by_dense = _cut(rows, dense, clip)
    return _numbers(by_row, clip), _numbers(by_dense, clip)


def clip_records(
    model: Model, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, clip: Clip
) -> tuple[Doubles, Doubles]:
    """Return the sum over a device's ratings of what each alone adds, each within the limits.

    Each rating is asked for its own gradient, so a penalty that a model counts once for a device counts here once for
    each rating. One that cannot be learned from, whatever the model says about it, adds nothing and takes nothing from
    the others: if it silenced the whole device, one rating could change more than its clip.
    """
    by_row = np.zeros(rows.shape, dtype=np.int64)
    by_dense = np.zeros(dense.shape, dtype=np.int64)
    for place in range(ratings.items.size):
        own_row, own_dense = _steps_of_one(model, rows, dense, private, ratings, place, clip)
        by_row[place] += own_row
        by_dense += own_dense
    return _numbers(by_row, clip), _numbers(by_dense, clip)


def clip_sums(values: Doubles, line: BudgetLine) -> Doubles:
    """Return what a device adds to a secure sum within the limit; its numbers keep their ratios."""
    (steps,) = clip_to_steps([values], limit=line.clip, fraction_bits=SUM_RING.fraction_bits)
    return steps / 2.0**SUM_RING.fraction_bits


def _steps_of_one(
    model: Model, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, place: int, clip: Clip
) -> tuple[Steps, Steps]:
    """Return what one rating adds to its row and to the dense part; zeros if anything goes wrong."""
    one = slice(place, place + 1)
    try:
        with np.errstate(all="ignore"):  # what overflows is refused when its length is asked for
            found = model.gradients(rows[one], dense, private, Ratings(ratings.items[one], ratings.values[one]))
        by_row, by_dense = _cut(found.rows, found.dense, clip)
        return by_row.reshape(rows.shape[1:]), by_dense.reshape(dense.shape)
    except Exception:  # an app's own model may fail in any way, and whether it does must not count for the others
        return np.zeros(rows.shape[1:], dtype=np.int64), np.zeros(dense.shape, dtype=np.int64)


def _cut(rows: Floats, dense: Floats, clip: Clip) -> tuple[Steps, Steps]:
    try:
        if clip.dense_limit is None:
            by_row, by_dense = clip_to_steps([rows, dense], limit=clip.limit, fraction_bits=clip.fraction_bits)
        else:
            (by_row,) = clip_to_steps([rows], limit=clip.limit, fraction_bits=clip.fraction_bits)
            (by_dense,) = clip_to_steps([dense], limit=clip.dense_limit, fraction_bits=clip.fraction_bits)
    except NotFiniteError as error:
        raise NotFiniteLossError("a gradient is not finite; upload zeros and check ratings and rates") from error
    return by_row, by_dense


def _numbers(steps: Steps, clip: Clip) -> Doubles:
    return steps / 2.0**clip.fraction_bits
