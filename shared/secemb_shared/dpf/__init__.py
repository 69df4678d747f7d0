"""Function secret sharing of point functions: paths, payloads and the backends that evaluate them."""

from secemb_shared.dpf._portable import convert_eval, convert_gen
from secemb_shared.dpf.backend import Backend, LeafTable, default_backend, expand_roots, leaf_corrections
from secemb_shared.dpf.checks import CHECK_KEY_BYTES, HASH_BYTES, SlotChecks, fingerprint_keys
from secemb_shared.dpf.paths import (
    CorrectionWords,
    HeldKeys,
    PathSecret,
    SessionKeys,
    path_eval,
    path_gen,
)
from secemb_shared.prg import Blocks, RingArray, hash_blocks, stream

__all__ = [
    "CHECK_KEY_BYTES",
    "HASH_BYTES",
    "Backend",
    "Blocks",
    "CorrectionWords",
    "HeldKeys",
    "LeafTable",
    "PathSecret",
    "RingArray",
    "SessionKeys",
    "SlotChecks",
    "convert_eval",
    "convert_gen",
    "default_backend",
    "expand_roots",
    "fingerprint_keys",
    "hash_blocks",
    "leaf_corrections",
    "path_eval",
    "path_gen",
    "stream",
]
