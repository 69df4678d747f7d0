"""Root seeds: a party receives 16 bytes instead of one seed for each slot."""

import numpy as np

from secemb_shared.dpf.backend import Backend, default_backend
from secemb_shared.dpf.paths import SEED_BITS
from secemb_shared.labels import Label, Purpose
from secemb_shared.prg import Blocks


def expand_roots(label: Label, seed: bytes, slots: int, backend: Backend | None = None) -> Blocks:
    """Return the (slots, 16) root seeds behind one party's master seed: its stream with the lowest bits cleared."""
    words = np.zeros((slots, 2), dtype=np.uint64)
    (backend or default_backend()).add_stream(label.key(Purpose.ROOTS, seed), words, negative=False)
    roots = words.astype("<u8", copy=False).view(np.uint8)
    roots[:, 0] &= SEED_BITS[0]
    return roots
