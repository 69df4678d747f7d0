"""Writing rows: one correction word a slot on the path of the read, and the sum over all sessions.

CW = (−1)^t₁ · (β − Convert(s₀) + Convert(s₁)) travels to both parties alike; each adds
(−1)^b · (Convert(s) + t · CW) for every leaf to its sums, and the two sums add up to Σ β by item.
"""

import numpy as np

from secemb_shared.dpf import Backend, HeldKeys, PathSecret, RingArray, default_backend
from secemb_shared.errors import SpecError
from secemb_shared.labels import Label, Purpose
from secemb_shared.messages.spec import RoundSpec


def correction_words(secret: PathSecret, label: Label, payload: RingArray, backend: Backend | None = None) -> RingArray:
    """Spend the path and return the (slots, width) words that place `payload` at its leaves."""
    leaf0, leaf1 = secret.spend()
    return (backend or default_backend()).convert_gen(label.key(Purpose.CONVERT), leaf0, leaf1, payload)


def accumulate(
    round_: RoundSpec, held: HeldKeys, words: RingArray, sums: RingArray, backend: Backend | None = None
) -> None:
    """Add one party's shares of several sessions' updates (sessions, slots, width) to its sums in place."""
    task = round_.task
    if words.shape != (held.sessions, held.slots, task.row_width) or words.dtype != task.ring.dtype:
        raise SpecError("correction words must be (sessions, slots, width) elements of the task's ring")
    if sums.shape != (task.items, task.row_width) or sums.dtype != task.ring.dtype:
        raise SpecError("sums must be (items, width) elements of the task's ring")
    (backend or default_backend()).accumulate(held, round_.leaf_table, words, sums)


def empty_sums(round_: RoundSpec) -> RingArray:
    """Return the sums of no session at all."""
    return np.zeros((round_.task.items, round_.task.row_width), dtype=round_.task.ring.dtype)


def reconstruct(share0: RingArray, share1: RingArray) -> RingArray:
    """Return the plain sum from both parties' shares."""
    return share0 + share1
