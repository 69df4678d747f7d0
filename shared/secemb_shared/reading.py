"""Reading rows: XOR-shared answers over float32 bits, and the tag that shows a wrong one.

The control bits of the two parties are XOR shares of "is this the leaf?", so the XOR of each party's chosen rows
is a share of the one row asked for: bit-exact, without fixed point. Every row carries a 32-bit tag of its bytes,
its item and the model version in one more column. The tag is not linear, so rows that were altered, mixed up or
kept from an older version on one side do not check out.
"""

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf import Backend, HeldKeys, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import RowTagError, SpecError
from secemb_shared.labels import Purpose
from secemb_shared.layout import Placement
from secemb_shared.messages.spec import RoundSpec
from secemb_shared.randomness import Indices

Rows = npt.NDArray[np.float32]  # (n, width)


def tag_rows(round_: RoundSpec, table: Rows, backend: Backend | None = None) -> Words32:
    """Return the (items, width + 1) words that a server answers from: the rows' bits and their tags."""
    task = round_.task
    if table.shape != (task.items, task.row_width) or table.dtype != np.float32:
        raise SpecError("the item table must be float32 with one row for each item of the task")
    bits = np.ascontiguousarray(table).view(np.uint32)
    tags = _tags(round_, bits, np.arange(task.items, dtype=np.int64), backend)
    return np.concatenate([bits, tags[:, None]], axis=1)


def answer(round_: RoundSpec, held: HeldKeys, tagged: Words32, backend: Backend | None = None) -> Words32:
    """Return one party's (sessions, slots, width + 1) shares of the rows that the sessions ask for."""
    return (backend or default_backend()).answer(held, round_.leaf_table, tagged)


def recover(
    round_: RoundSpec, placement: Placement, answers: tuple[Words32, Words32], backend: Backend | None = None
) -> tuple[Indices, Rows]:
    """Return the items of this device that found a place and their rows; raise `RowTagError` if any is wrong."""
    items, words = placement.collect(answers[0] ^ answers[1])
    bits = np.ascontiguousarray(words[:, :-1])
    if items.size and not np.array_equal(_tags(round_, bits, items, backend), words[:, -1]):
        raise RowTagError("a row is altered, stale or not the one asked for; do not train on it, upload zeros")
    return items, bits.view(np.float32)


def _tags(round_: RoundSpec, bits: Words32, items: Indices, backend: Backend | None) -> Words32:
    key = round_.model_label.key(Purpose.ROW_TAG)
    return (backend or default_backend()).row_tags(key, bits, items)
