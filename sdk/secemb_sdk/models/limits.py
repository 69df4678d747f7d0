"""Clips an update to the limits of a task with noise: as a whole, or the part of each rating."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_sdk.errors import ModelError, NotFiniteLossError
from secemb_sdk.models.interface import Floats, Model, Ratings, RecordModel, gives_records
from secemb_shared.errors import NotFiniteError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.privacy import RECORD, USER, BudgetLine
from secemb_shared.privacy.clip import Steps, clip_each_to_steps, clip_to_steps
from secemb_shared.secure_sum import SUM_RING

Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.floating]

_SHORT = 1 - 2.0**-10  # rounding to whole steps lengthens an update by far less than this margin
_TOGETHER = 1 << 18  # gradient values computed at once: a model's calls cost more than its arithmetic
_IN_CACHE = 1 << 15  # of those that are clipped at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """The maximum norm of an update, in the ring's smallest steps."""

    unit: str
    limit: int  # of rows and dense part together, or of the rows alone
    dense_limit: int | None = None  # of the dense part, if it has a separate limit
    fraction_bits: int

    def __post_init__(self) -> None:
        if self.unit not in (USER, RECORD):
            raise ModelError("updates must be clipped per user or per record")

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


def clip_update(rows: Numbers, dense: Numbers, clip: Clip) -> tuple[Doubles, Doubles]:
    """Return a device's whole update, clipped; the values are whole steps, so that encoding loses nothing."""
    by_row, by_dense = _cut(rows, dense, clip)
    return _numbers(by_row, clip), _numbers(by_dense, clip)


def fit_norm(rows: Numbers, dense: Numbers, task: TaskSpec) -> tuple[Numbers, Numbers, bool]:
    """Return a device's whole update, clipped to the task's norm bound, and whether it was longer.

    An update that is short enough is unchanged, to the last bit.
    """
    if not task.norm_bound or _length(rows, dense) <= task.norm_bound / 2.0**task.fraction_bits * _SHORT:
        return rows, dense, False
    whole = Clip(unit=USER, limit=task.norm_bound, fraction_bits=task.fraction_bits)
    return *clip_update(rows, dense, whole), True


def _length(rows: Numbers, dense: Numbers) -> float:
    squares = (float(np.square(part, dtype=np.float64).sum()) for part in (rows, dense))
    return math.sqrt(sum(squares))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordUpdate:
    """The sum of the contributions of a device's ratings, each clipped."""

    rows: Doubles = field(repr=False)  # (n, row width)
    dense: Doubles = field(repr=False)  # (dense size,)
    trouble: str | None = None  # the name of an error, if a rating cannot be learned from


def clip_records(
    model: Model, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, clip: Clip
) -> RecordUpdate:
    """Return the sum of the contributions of a device's ratings, each clipped.

    The gradient of each rating is computed separately, so a penalty that a model counts once per device counts once
    per rating here. A rating that cannot be learned from adds nothing and does not affect the others: if it
    suppressed the whole update, one rating could change more than its clip.
    """
    found = _records_together(model, rows, dense, private, ratings, clip) if gives_records(model) else None
    if found is None:
        found = _records_one_by_one(model, rows, dense, private, ratings, clip)
    return RecordUpdate(rows=_numbers(found.by_row, clip), dense=_numbers(found.by_dense, clip), trouble=found.trouble)


def clip_sums(values: Doubles, line: BudgetLine) -> Doubles:
    """Return a device's contribution to a secure sum, scaled to the limit."""
    (steps,) = clip_to_steps([values], limit=line.clip, fraction_bits=SUM_RING.fraction_bits)
    return steps / 2.0**SUM_RING.fraction_bits


@dataclass(slots=True, kw_only=True, eq=False)
class _Records:
    by_row: Steps  # (n, row width)
    by_dense: Steps  # (dense size,), the sum
    trouble: str | None = None

    @classmethod
    def zeros(cls, rows: Floats, dense: Floats) -> Self:
        return cls(by_row=np.zeros(rows.shape, np.int64), by_dense=np.zeros(dense.shape, np.int64))


def _records_together(
    model: RecordModel, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, clip: Clip
) -> _Records | None:
    """Return the contributions of the ratings, from many gradients at once; None if the model fails."""
    found = _Records.zeros(rows, dense)
    for some in _slices(len(rows), _TOGETHER // (rows.shape[1] + dense.size)):
        try:
            with np.errstate(all="ignore"):  # values that overflow are left out below
                gradients = model.record_gradients(rows[some], dense, private, _only(ratings, some))
        except Exception:  # one rating may be the cause: compute each separately
            return None
        _add_cut(found, some, *gradients, clip)
    return found


def _add_cut(found: _Records, some: slice, by_row: Floats, by_dense: Floats, clip: Clip) -> None:
    """Add the contributions of these ratings, each clipped; one whose gradient is not finite adds nothing."""
    into = found.by_row[some]
    for few in _slices(len(by_row), _IN_CACHE // (by_row.shape[1] + by_dense.shape[1])):
        try:
            into[few], shared = _cut_each(by_row[few], by_dense[few], clip)
        except NotFiniteError:
            into[few], shared = _cut_each(*_only_finite(by_row[few], by_dense[few]), clip)
            found.trouble = NotFiniteLossError.__name__
        if shared.size:
            found.by_dense += shared.sum(axis=0)


def _records_one_by_one(
    model: Model, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, clip: Clip
) -> _Records:
    found = _Records.zeros(rows, dense)
    for one in _slices(len(rows), 1):
        try:
            with np.errstate(all="ignore"):  # an overflow is refused when its norm is computed
                alone = model.gradients(rows[one], dense, private, _only(ratings, one))
            by_row, by_dense = _cut(alone.rows, alone.dense, clip)
            found.by_row[one] = by_row
            found.by_dense += by_dense
        except Exception as error:  # an app's own model may fail in any way, which must not affect the other ratings
            found.trouble = type(error).__name__
    return found


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(first, first + max(1, step)) for first in range(0, count, max(1, step)))


def _only_finite(by_row: Floats, by_dense: Floats) -> tuple[Floats, Floats]:
    """Return the gradients, with non-finite ones replaced by zeros."""
    usable = np.isfinite(np.concatenate([by_row, by_dense], axis=1)).all(axis=1, keepdims=True)
    by_row, by_dense = (np.where(usable, part, np.float32(0)) for part in (by_row, by_dense))
    return by_row, by_dense


def _only(ratings: Ratings, some: slice) -> Ratings:
    return Ratings(ratings.items[some], ratings.values[some])


def _cut(rows: Numbers, dense: Numbers, clip: Clip) -> tuple[Steps, Steps]:
    try:
        if clip.dense_limit is None:
            by_row, by_dense = clip_to_steps([rows, dense], limit=clip.limit, fraction_bits=clip.fraction_bits)
        else:
            (by_row,) = clip_to_steps([rows], limit=clip.limit, fraction_bits=clip.fraction_bits)
            (by_dense,) = clip_to_steps([dense], limit=clip.dense_limit, fraction_bits=clip.fraction_bits)
    except NotFiniteError as error:
        raise NotFiniteLossError("a gradient is not finite; check the ratings and learning rates") from error
    return by_row, by_dense


def _cut_each(rows: Floats, dense: Floats, clip: Clip) -> tuple[Steps, Steps]:
    """Return many updates, one per line, each clipped."""
    if clip.dense_limit is None:
        by_row, by_dense = clip_each_to_steps([rows, dense], limit=clip.limit, fraction_bits=clip.fraction_bits)
        return by_row, by_dense
    (by_row,) = clip_each_to_steps([rows], limit=clip.limit, fraction_bits=clip.fraction_bits)
    (by_dense,) = clip_each_to_steps([dense], limit=clip.dense_limit, fraction_bits=clip.fraction_bits)
    return by_row, by_dense


def _numbers(steps: Steps, clip: Clip) -> Doubles:
    return steps / 2.0**clip.fraction_bits
