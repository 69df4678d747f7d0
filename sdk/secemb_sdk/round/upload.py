"""The upload of a session: an update, the numbers of a survey or an evaluation, or zeros if anything failed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, MisfitError, RefusedError
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Floats, Model, PrivateState, Ratings, fit_bound, learn
from secemb_sdk.models.interface import reads_texts
from secemb_sdk.models.limits import Clip, clip_records, clip_sums, clip_update, fit_norm
from secemb_sdk.models.update import move_private
from secemb_sdk.round.measure import measure
from secemb_sdk.round.route import ReadRows
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.session import DeviceSession, Messages, generator_seed
from secemb_sdk.round.whole_table import WholeTable
from secemb_shared.errors import MessageError, RowTagError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.privacy import RECORD
from secemb_shared.messages.spec import SURVEY, SURVEY_CAPACITIES, TRAIN
from secemb_shared.randomness import RandomBytes
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING


def survey(values: Floats) -> npt.NDArray[np.float64]:
    """Return a device's item count, the sums of its ratings above and below the centre and squared, and kept counts.

    No number is negative: if the unit of privacy is a record, the noise relies on this.
    """
    count, wide = values.size, values.astype(np.float64)
    sums = [np.maximum(wide, 0).sum(), np.maximum(-wide, 0).sum(), (wide * wide).sum()]
    kept = [min(count, capacity) for capacity in SURVEY_CAPACITIES]
    return np.minimum(np.array([count, *sums, *kept], dtype=np.float64), SUM_BOUND / 2.0**SUM_RING.fraction_bits)


Numbers = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Upload:
    """The data that a device sends, and those that it keeps from the round."""

    messages: Messages
    private: PrivateState | None = None  # None: unchanged
    trouble: str | None = None  # the name of an error
    clipped: bool = False  # it exceeded the task's bounds, as a whole or in one number


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class _Learned:
    """The result of training on a device."""

    rows: Numbers
    dense: Numbers
    private: PrivateState  # after the round
    trouble: str | None = None


def make_upload(
    context: Context,
    session: DeviceSession,
    selection: Selection,
    read_rows: ReadRows,
    dense: Floats | None,
    random_bytes: RandomBytes,
    *,
    table: Floats | None = None,  # all rows, if an evaluation ranks all of them
) -> Upload:
    """Return the upload, or zeros if anything fails: a missing upload would reveal that."""
    try:
        return _make(context, session, selection, read_rows, dense, random_bytes, table)
    except Exception as error:
        # Any error: a wrong tag, a failing model, non-finite numbers. The owner is told its name.
        if isinstance(error, RowTagError | MessageError):
            context.note(Misconduct.ROWS)
        return Upload(messages=session.write_nothing(), trouble=type(error).__name__)


def _make(
    context: Context,
    session: DeviceSession,
    selection: Selection,
    read_rows: ReadRows,
    dense: Floats | None,
    random_bytes: RandomBytes,
    table: Floats | None,
) -> Upload:
    round_ = session.round
    if round_.kind == SURVEY:
        return Upload(messages=session.write_sums(_clip_sums(round_, survey(selection.values))))
    items, rows = read_rows()
    if dense is None:
        raise CopyError("the two servers publish different dense parts")
    if items.size == 0:
        return Upload(messages=session.write_nothing())
    model = context.model_for(round_.task)
    private = current_private(context, model, random_bytes)
    if round_.kind != TRAIN:
        whole = None
        if table is not None and selection.window is not None:
            held = selection.items[selection.held_out]
            chosen = held if reads_texts(model) else np.union1d(context.known_items(round_.task), held)
            whole = WholeTable(rows=table, chosen=chosen, seed=selection.window.seed)
        measured = measure(round_.task, model, private, selection, items, rows, dense, whole)
        return Upload(messages=session.write_sums(_clip_sums(round_, measured)))
    learned = _learn(context, round_.task, model, private, rows, dense, selection.ratings_of(items))
    rows, dense, shortened = fit_norm(learned.rows, learned.dense, round_.task)
    (by_row, row_clipped), (by_dense, dense_clipped) = (fit_bound(part, round_.task) for part in (rows, dense))
    return Upload(
        messages=session.write(items, by_row, by_dense),
        private=learned.private,
        trouble=learned.trouble,
        clipped=shortened or row_clipped or dense_clipped,
    )


def _learn(
    context: Context,
    task: TaskSpec,
    model: Model,
    private: PrivateState,
    rows: Floats,
    dense: Floats,
    ratings: Ratings,
) -> _Learned:
    """Return the update within the task's clip, and the private part after the round."""
    rate, clip = context.rate_for(task), Clip.of(task)
    if clip is None or clip.unit != RECORD:
        by_row, by_dense, moved = learn(model, private, rows, dense, ratings, rate=rate, epochs=context.epochs)
        if clip is None:
            return _Learned(rows=by_row, dense=by_dense, private=moved)
        clipped = clip_update(by_row, by_dense, clip)
        return _Learned(rows=clipped[0], dense=clipped[1], private=moved)
    found, trouble = clip_records(model, rows, dense, private.values, ratings, clip), None
    # A faulty rating does not affect the update from the others: if it were suppressed, one rating could change
    # more than its clip. The private part changes only now, for the next round: it depends on all ratings of this one.
    try:
        if found.trouble is None:
            private = move_private(model, private, rows, dense, ratings, rate=rate)
    except Exception as error:
        trouble = type(error).__name__
    return _Learned(rows=found.rows, dense=found.dense, private=private, trouble=found.trouble or trouble)


def _clip_sums(round_: RoundSpec, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    privacy = round_.task.privacy
    if privacy is None:
        return values
    line = privacy.line(round_.kind)
    if line is None:
        raise RefusedError("the task has no privacy budget for rounds of this kind")
    return clip_sums(values, line)


def current_private(context: Context, model: Model, random_bytes: RandomBytes) -> PrivateState:
    """Return the private part in the home, or a new one before the first round."""
    kept = kept_private(context, model)
    return kept or PrivateState.begin(model, np.random.default_rng(generator_seed(random_bytes)))


def kept_private(context: Context, model: Model) -> PrivateState | None:
    """Return the private part in the home, or raise if it belongs to another model."""
    kept = context.vault.private()
    if kept is not None and kept.values.shape != (model.private_size,):
        raise MisfitError(
            "the home contains the private part of a different model; open it with that model, or call forget()"
        )
    return kept
