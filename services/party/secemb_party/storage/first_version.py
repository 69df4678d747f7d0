"""Version 0 of a successor's model, made from the last version of its predecessor.

Both servers compute it independently and compare digests (docs/reference/protocol.md, section 18.3).
"""

import numpy as np

from secemb_party.errors import LedgerConflictError, WeightsError
from secemb_party.storage.interfaces import ModelStore
from secemb_party.storage.model import Floats, Model, Shape, first_model
from secemb_shared.messages import TaskSpec
from secemb_shared.row_map import MEAN, SEEDED, RowMap
from secemb_shared.row_words import published

_BLOCK = 4096  # rows that are added in one call


def starting_model(task: TaskSpec, models: ModelStore) -> Model:
    """Return version 0 of a task that begins on this server: stored already, or as the task specifies."""
    held = models.versions()
    if held and held[-1] > 0:
        raise LedgerConflictError(
            f"the ledger is new, but data_dir has version {held[-1]} of the model; restore its ledger, or create a new"
            " task from this model (see Backups in docs/operating.md)"
        )
    if held:
        return models.load(0)  # imported before the first startup, or made from the predecessor
    if task.predecessor:
        raise LedgerConflictError(
            "this task continues another one, whose model is not on this server; start the predecessor here and let it"
            " switch, or import version 0 with `secemb model import`"
        )
    return first_model(task)


def continued_model(last: Model, task: TaskSpec, rows: RowMap) -> Model:
    """Return version 0 of the successor `task`: kept rows and the dense part keep their numbers."""
    wanted = Shape.of(task)
    if (rows.before, len(rows)) != (len(last.rows), task.items) or last.rows.shape[1] != wanted.width:
        raise WeightsError("the row map does not lead from this model to the successor's")
    if last.dense.size != wanted.dense:
        raise WeightsError("the successor must have a dense part of the same size")
    table = place_rows(last.rows, rows)
    if (new := rows.new(SEEDED)).size:
        table[new] = first_model(task).rows[new]
    if (new := rows.new(MEAN)).size:
        table[new] = mean_row(last.rows, rows)
    return Model(task_id=task.task_id, version=0, rows=published(table, task.row_bits), dense=last.dense.copy())


def place_rows(values: Floats, rows: RowMap) -> Floats:
    """Return an array of the predecessor's rows with kept rows in their new places; new rows are zero."""
    placed = np.zeros((len(rows), *values.shape[1:]), dtype=np.float32)
    kept = rows.kept
    placed[kept] = values[rows.sources[kept]]
    return placed


def mean_row(values: Floats, rows: RowMap) -> Floats:
    """Return the mean of all kept rows; zeros if there are none."""
    kept = np.sort(rows.sources[rows.kept])
    if not kept.size:
        return np.zeros(values.shape[1:], dtype=np.float32)
    # Row by row in binary64, in the order of the predecessor, so that all machines round alike.
    total = np.zeros((1, *values.shape[1:]), dtype=np.float64)
    for first in range(0, kept.size, _BLOCK):
        block = values[kept[first : first + _BLOCK]].astype(np.float64)
        total = np.concatenate([total, block]).sum(axis=0, keepdims=True)
    mean: Floats = (total[0] / kept.size).astype(np.float32)
    return mean
