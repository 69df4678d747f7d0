"""The C kernel: whether it runs here, and those of its functions that need no backend.

It is only faster. The definitions are in Python, beside the callers, and the tests compare the two.
"""

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices

try:
    from secemb_shared import _kernel
except ImportError:  # no compiler when it was installed, or no AES instructions on this processor
    _kernel = None  # type: ignore[assignment]

compiled = _kernel  # what the native backend calls


def native_available() -> bool:
    """Tell whether the kernel was built and runs on this processor."""
    return _kernel is not None


def instruction_sets() -> list[str]:
    """Return what this processor offers the kernel, best first; empty without the kernel."""
    return _kernel.instruction_sets() if native_available() else []


def select_instruction_set(name: str) -> None:
    """Make the kernel use this instruction set from now on; for tests and measurements."""
    _kernel.select(name)


def judge_proposals(
    words: npt.NDArray[np.uint64], *, bits: int, slope: int, start: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return what pairs of random words propose as noise, and the verdicts, as `privacy.gaussian.judge` does."""
    values, verdicts = np.empty(len(words), dtype=np.int64), np.empty(len(words), dtype=np.uint8)
    _kernel.judge_proposals(words, bits, slope, start, values, verdicts)
    return values, verdicts


def permute(key: bytes, values: Indices, *, items: int, backwards: bool) -> Indices:
    """Return where each value goes, or which one went there, as `layout.Permutation` does."""
    result = values.copy()
    _kernel.permute(key, items, backwards, result)
    return result


def match(choices: Indices, slots: int) -> Indices:
    """Return a slot for each row of choices, or -1, as `layout.placement.maximum_matching` does."""
    slot_of = np.empty(len(choices), dtype=np.int64)
    _kernel.match(np.ascontiguousarray(choices), choices.shape[1], slots, slot_of)
    return slot_of
