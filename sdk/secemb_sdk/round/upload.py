"""What a session uploads: an update, the numbers of a survey or an evaluation, or zeros if anything failed."""

import numpy as np
import numpy.typing as npt

from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, MisfitError, RefusedError
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.models import Floats, Model, PrivateState, Ratings, fit_bound, learn
from secemb_sdk.models.interface import SolvedModel
from secemb_sdk.models.limits import Clip, clip_records, clip_sums, clip_update
from secemb_sdk.models.update import fit_private
from secemb_sdk.round.measure import measure
from secemb_sdk.round.route import ReadRows
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.session import DeviceSession, Messages, generator_seed
from secemb_shared.errors import MessageError, RowTagError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.privacy import RECORD
from secemb_shared.messages.spec import SURVEY, SURVEY_CAPACITIES, TRAIN
from secemb_shared.randomness import RandomBytes


def survey(values: Floats) -> npt.NDArray[np.float64]:
    """Return how many items a device has, whether it has any, its mean rating, and what each capacity would keep."""
    count = values.size
    kept = [min(count, capacity) for capacity in SURVEY_CAPACITIES]
    return np.array([count, count > 0, max(values.mean(), 0.0) if count else 0.0, *kept], dtype=np.float64)


Numbers = npt.NDArray[np.floating]
Upload = tuple[Messages, PrivateState | None, str | None]  # messages, next private state, name of the error


def make_upload(
    context: Context,
    session: DeviceSession,
    selection: Selection,
    read_rows: ReadRows,
    dense: Floats | None,
    random_bytes: RandomBytes,
) -> Upload:
    """Return the upload, or zeros if anything fails: a missing upload would reveal that."""
    try:
        return _make(context, session, selection, read_rows, dense, random_bytes)
    except Exception as error:
        # Any error: a wrong tag, a model that fails, numbers that are not finite. The owner learns its name.
        if isinstance(error, RowTagError | MessageError):
            context.note(Misconduct.ROWS)
        return session.write_nothing(), None, type(error).__name__


def _make(
    context: Context,
    session: DeviceSession,
    selection: Selection,
    read_rows: ReadRows,
    dense: Floats | None,
    random_bytes: RandomBytes,
) -> Upload:
    round_ = session.round
    if round_.kind == SURVEY:
        return session.write_sums(_clip_sums(round_, survey(selection.values))), None, None
    items, rows = read_rows()
    if dense is None:
        raise CopyError("the two servers publish different dense parts")
    if items.size == 0:
        return session.write_nothing(), None, None
    model = context.model_for(round_.task)
    private = current_private(context, model, random_bytes)
    if round_.kind != TRAIN:
        measured = measure(round_.task, model, private, selection, items, rows, dense)
        return session.write_sums(_clip_sums(round_, measured)), None, None
    ratings = selection.ratings_of(items)
    by_row, by_dense, moved, trouble = _learn(context, round_.task, model, private, rows, dense, ratings)
    return session.write(items, by_row, by_dense), moved, trouble


def _learn(
    context: Context,
    task: TaskSpec,
    model: Model,
    private: PrivateState,
    rows: Floats,
    dense: Floats,
    ratings: Ratings,
) -> tuple[Numbers, Numbers, PrivateState, str | None]:
    """Return the updates within the task's limits, the private part after the round, and the name of an error."""
    rate, clip = context.rate_for(task), Clip.of(task)
    if clip is not None and clip.unit == RECORD:
        found = clip_records(model, rows, dense, private.values, ratings, clip)
        update = _fit((found.rows, found.dense), task)
        if found.trouble is not None:
            # One rating that cannot be learned from must not suppress the others: the update stands without it.
            return *update, private, found.trouble
        # Solved only now, for the next round: what the update was made with must not depend on this round's ratings.
        if isinstance(model, SolvedModel):
            return *update, fit_private(model, private, rows, dense, ratings), None
        return *update, private.step(found.private, rate=rate), None
    by_row, by_dense, moved = learn(model, private, rows, dense, ratings, rate=rate, epochs=context.epochs)
    if clip is None:
        return *_fit((by_row, by_dense), task), moved, None
    return *_fit(clip_update(by_row, by_dense, clip), task), moved, None


def _fit(update: tuple[Numbers, Numbers], task: TaskSpec) -> tuple[Numbers, Numbers]:
    """Return rows and dense part within the bound of each element."""
    return fit_bound(update[0], task)[0], fit_bound(update[1], task)[0]


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
        raise MisfitError("the home holds the private part of another model; open it with that model, or call forget()")
    return kept
