"""The C kernel: whether it can run here, and its functions that need no backend.

It serves speed only. The definitions are in Python, next to the callers, and tests compare the two.
"""

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices

try:
    from secemb_shared import _kernel
except ImportError:  # there was no compiler at installation, or the processor has no AES instructions
    _kernel = None  # type: ignore[assignment]

compiled = _kernel  # for the native backend


def native_available() -> bool:
    """Return whether the kernel was built and runs on this processor."""
    return _kernel is not None


def instruction_sets() -> list[str]:
    """Return the instruction sets that the kernel can use on this processor, best first; empty without the kernel."""
    return _kernel.instruction_sets() if native_available() else []


def select_instruction_set(name: str) -> None:
    """Make the kernel use this instruction set; for tests and measurements."""
    _kernel.select(name)


def judge_proposals(
    words: npt.NDArray[np.uint64], *, bits: int, slope: int, start: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the noise that pairs of random words propose, and which is accepted, like `privacy.gaussian.judge`."""
    values, verdicts = np.empty(len(words), dtype=np.int64), np.empty(len(words), dtype=np.uint8)
    _kernel.judge_proposals(words, bits, slope, start, values, verdicts)
    return values, verdicts


def permute(key: bytes, values: Indices, *, items: int, backwards: bool) -> Indices:
    """Return the image of each value, or its preimage, like `layout.Permutation`."""
    result = values.copy()
    _kernel.permute(key, items, backwards, result)
    return result


def match(choices: Indices, slots: int) -> Indices:
    """Return a slot for each row of choices, or -1, like `layout.placement.maximum_matching`."""
    slot_of = np.empty(len(choices), dtype=np.int64)
    _kernel.match(np.ascontiguousarray(choices), choices.shape[1], slots, slot_of)
    return slot_of
