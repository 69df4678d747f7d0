"""Sums of private vectors: one party's share is a stream from a seed, the other's is the value minus it.

The same primitive is used for the dense gradient, the survey for choosing m', and private evaluation.
"""

from secemb_shared.dpf import Backend, RingArray, default_backend
from secemb_shared.ring import Ring

SUM_RING = Ring(bits=64, fraction_bits=16)  # secure sums hold counts and measurements: range matters more than size
SUM_BOUND = 2**40  # in the ring's smallest steps: 16 million, so that eight million sessions do not wrap around


def hide(key: bytes, values: RingArray, backend: Backend | None = None) -> RingArray:
    """Return the explicit share: values − stream(key)."""
    share = values.copy()
    (backend or default_backend()).add_stream(key, share, negative=True)
    return share


def add_seeded(key: bytes, sums: RingArray, backend: Backend | None = None) -> None:
    """Add the share that a seed expands to, in place."""
    (backend or default_backend()).add_stream(key, sums, negative=False)
