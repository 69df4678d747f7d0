"""The optimiser's state at version 0 of a successor: kept rows keep their moments and their guard's scales.

A new row begins without a direction, but with the mean of the kept rows' squared gradients: with zeros, an optimiser
that has long passed its first steps would move it too fast. Only server 0 has this state, so nothing is compared.
Rows that were kept unrounded stay behind: a successor begins from the rows that both servers can compute.
"""

from secemb_party.storage import Floats, OptimiserState
from secemb_party.storage.first_version import mean_row, place_rows
from secemb_server0.optimiser import EXACT, INHERITED, inherited_steps
from secemb_server0.reconstruct import fresh_state
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.row_map import RowMap

_SCALE = "_scale"  # suffix of the guard's tensors
_OF_ROWS, _SECOND = "rows_", "rows_second"


def inherit_state(state: OptimiserState | None, task: TaskSpec, rows: RowMap) -> OptimiserState:
    """Return the state with which a successor begins; a fresh one if the predecessor's does not fit its optimiser."""
    if state is None or state.kind != task.optimiser or not state.tensors:
        return fresh_state(task, 0)
    guarded = decimal(task.guard) > 0
    if guarded and not any(name.endswith(_SCALE) for name in state.tensors):
        return fresh_state(task, 0)
    tensors = {
        name: _placed(name, values, rows)
        for name, values in state.tensors.items()
        if name not in (INHERITED, EXACT) and (guarded or not name.endswith(_SCALE))
    }
    tensors[INHERITED] = inherited_steps(state)
    return OptimiserState(task_id=task.task_id, version=0, kind=state.kind, steps=0, tensors=tensors)


def _placed(name: str, values: Floats, rows: RowMap) -> Floats:
    if not name.startswith(_OF_ROWS):
        return values.copy()
    placed = place_rows(values, rows)
    if name == _SECOND:
        placed[rows.sources < 0] = mean_row(values, rows)
    return placed
