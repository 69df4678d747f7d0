"""Discrete Gaussian noise, exact: numbers with P(x) ∝ exp(−x²/2σ²), from a cryptographic source.

Proposals are made from an AES stream whose key is drawn anew for each batch, and judged by the kernel or by the
definition; both give the same numbers from the same bytes. How long it takes says how many proposals were rejected,
which has nothing to do with the numbers that were accepted.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf._native import judge_proposals, native_available
from secemb_shared.errors import RingError
from secemb_shared.prg import RingArray
from secemb_shared.privacy import judging
from secemb_shared.privacy.deciding import decide
from secemb_shared.privacy.envelope import Envelope
from secemb_shared.privacy.judging import ACCEPTED, REJECTED, UNDECIDED, Judged, Words
from secemb_shared.randomness import RandomBytes, secure_bytes

Noise = npt.NDArray[np.int64]
Judge = Callable[[Words, Envelope], Judged]

_BATCH = 1 << 16  # proposals: two megabytes, which stay in the cache
_KEY_BYTES = 16


@cache
def default_judge() -> Judge:
    """Return the kernel where it was built, else the definition."""
    return _judge_natively if native_available() else judging.judge


def draw(
    count: int,
    *,
    variance: int,
    random_bytes: RandomBytes = secure_bytes,
    judge: Judge | None = None,
    backend: Backend | None = None,
) -> Noise:
    """Return `count` independent numbers from the discrete Gaussian of this variance (σ², in squared steps)."""
    envelope, noise, done = Envelope.of(variance), np.empty(count, dtype=np.int64), 0
    while done < count:
        words = _propose(min(_BATCH, 2 * (count - done) + 16), random_bytes, backend or default_backend())
        some = _accepted(words, envelope, random_bytes, judge or default_judge())[: count - done]
        noise[done : done + some.size] = some
        done += some.size
    return noise


def add_noise(values: RingArray, *, variance: int, random_bytes: RandomBytes = secure_bytes) -> None:
    """Add fresh noise to every element of `values` in place, in the ring of its type."""
    if not values.flags.c_contiguous:
        raise RingError("noise is added in place, to numbers that lie in one piece")
    flat = values.reshape(-1)  # a view
    for first in range(0, flat.size, _BATCH):
        part = flat[first : first + _BATCH]
        noise = draw(part.size, variance=variance, random_bytes=random_bytes)
        np.add(part, noise.view(np.uint64).astype(part.dtype), out=part)  # modulo 2^32 the upper half falls away


def _propose(count: int, random_bytes: RandomBytes, backend: Backend) -> Words:
    words = np.zeros((count, 2), dtype=np.uint64)
    backend.add_stream(random_bytes(_KEY_BYTES), words, negative=False)
    return words


def _accepted(words: Words, envelope: Envelope, random_bytes: RandomBytes, judge: Judge) -> Noise:
    """Return what is accepted, in the order of the proposals."""
    values, verdicts = judge(words, envelope)
    for place in np.flatnonzero(verdicts == UNDECIDED):
        value = decide(int(words[place, 0]), int(words[place, 1]), envelope, random_bytes)
        verdicts[place] = REJECTED if value is None else ACCEPTED
        values[place] = 0 if value is None else value
    accepted: Noise = values[verdicts == ACCEPTED]
    return accepted


def _judge_natively(words: Words, envelope: Envelope) -> Judged:
    return judge_proposals(words, bits=envelope.bits, slope=envelope.slope, start=envelope.start)
