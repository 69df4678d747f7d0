"""Rows of the item table, read and written through shares: neither server learns which rows they are.

Reading: XOR-shared answers over the rows' bits, and a tag that reveals a wrong one. The control bits of the two parties
are XOR shares of "is this the leaf?", so the XOR of each party's chosen rows is a share of the requested row:
bit-exact, without fixed point. Every row has one more column with a 32-bit tag of its bytes, its item and the model
version. The tag is not linear, so the check fails for rows that one side altered, mixed up or kept from an older
version.

Writing: one correction word per slot on the path of the read, and the sum over all sessions. CW = (−1)^t₁ · (β −
Convert(s₀) + Convert(s₁)) is sent to both parties; each adds (−1)^b · (Convert(s) + t · CW) for every leaf to its sums,
and the two sums add up to Σ β by item.
"""

import numpy as np

from secemb_shared.dpf import Backend, HeldKeys, PathSecret, RingArray, default_backend
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import RowTagError, SpecError
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout import Placement
from secemb_shared.messages.spec import RoundSpec
from secemb_shared.randomness import Indices
from secemb_shared.row_words import Rows, as_words, from_words


def tag_rows(round_: RoundSpec, table: Rows, backend: Backend | None = None) -> Words32:
    """Return the (items, row words + 1) words from which a server answers: the rows' bits and their tags."""
    task = round_.task
    if table.shape != (task.items, task.row_width) or table.dtype != np.float32:
        raise SpecError("the item table must be float32 with one row per item of the task")
    return tag_some(round_, table, np.arange(task.items, dtype=np.int64), backend)


def tag_some(round_: RoundSpec, rows: Rows, items: Indices, backend: Backend | None = None) -> Words32:
    """Return the (n, row words + 1) words of some rows, given their items."""
    bits = as_words(rows, round_.task.row_bits)
    return np.concatenate([bits, _tags(round_, bits, items, backend)[:, None]], axis=1)


def answer(round_: RoundSpec, held: HeldKeys, tagged: Words32, backend: Backend | None = None) -> Words32:
    """Return one party's (sessions, slots, row words + 1) shares of the rows that the sessions request."""
    return (backend or default_backend()).answer(held, round_.leaf_table, tagged)


def recover(
    round_: RoundSpec, placement: Placement, answers: tuple[Words32, Words32], backend: Backend | None = None
) -> tuple[Indices, Rows]:
    """Return the placed items of this device and their rows; raise `RowTagError` if any is wrong."""
    items, words = placement.collect(answers[0] ^ answers[1])
    bits = np.ascontiguousarray(words[:, :-1])
    if items.size and not np.array_equal(_tags(round_, bits, items, backend), words[:, -1]):
        raise RowTagError(
            "a row is altered, stale or not the one requested; do not train on it, and upload zeros instead"
        )
    return items, from_words(bits, round_.task.row_width, round_.task.row_bits)


def _tags(round_: RoundSpec, bits: Words32, items: Indices, backend: Backend | None) -> Words32:
    key = round_.model_label.key(Purpose.ROW_TAG)
    return (backend or default_backend()).row_tags(key, bits, items)


def correction_words(secret: PathSecret, label: Label, payload: RingArray, backend: Backend | None = None) -> RingArray:
    """Spend the path and return the (slots, width) words that place `payload` at its leaves."""
    leaf0, leaf1 = secret.spend()
    return (backend or default_backend()).convert_gen(label.key(Purpose.CONVERT), leaf0, leaf1, payload)


def accumulate(
    round_: RoundSpec,
    held: HeldKeys,
    words: RingArray,
    sums: RingArray,
    backend: Backend | None = None,
    *,
    slot_sums: RingArray | None = None,
) -> None:
    """Add one party's shares of several sessions' updates (sessions, slots, width) to its sums in place.

    `slot_sums`, which has the shape of the words, receives what each slot of each session adds.
    """
    task = round_.task
    if words.shape != (held.sessions, held.slots, task.row_width) or words.dtype != task.ring.dtype:
        raise SpecError("correction words must be an array of shape (sessions, slots, width) in the task's ring")
    if sums.shape != (task.items, task.row_width) or sums.dtype != task.ring.dtype:
        raise SpecError("sums must be an array of shape (items, width) in the task's ring")
    (backend or default_backend()).accumulate(held, round_.leaf_table, words, sums, slot_sums)


def empty_sums(round_: RoundSpec) -> RingArray:
    """Return the sums over no sessions: zeros."""
    return np.zeros((round_.task.items, round_.task.row_width), dtype=round_.task.ring.dtype)


def reconstruct(share0: RingArray, share1: RingArray) -> RingArray:
    """Return the plaintext sum from both parties' shares."""
    return share0 + share1
