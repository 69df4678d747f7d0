"""The two files of an optimiser's step, written in one pass over its blocks."""

from collections.abc import Callable, Mapping
from typing import BinaryIO

import numpy as np

from secemb_party.errors import WeightsError
from secemb_party.storage.model import ModelStep, OptimiserState, Shape, check_rows, little_endian
from secemb_party.storage.tensor_files import TensorWriter, map_tensors
from secemb_shared.messages.table import hash_model

MODEL, STATE = "secemb/1 model", "secemb/1 optimiser"
_SINGLE = np.dtype(np.float32)
_UNKNOWN = bytes(32)  # as long as the digest that replaces it in the header
Origin = Callable[[str, int, bytes], Mapping[str, str]]  # of a file: purpose, version, digest


def write_step(state_file: BinaryIO | None, file: BinaryIO, step: ModelStep, shape: Shape, origin: Origin) -> bytes:
    """Write the state, if there is one, and the version of a step; return the digest of the version."""
    parts = {"rows": (shape.items, shape.width), "dense": (shape.dense,)}
    model = TensorWriter(file, {name: (_SINGLE, one) for name, one in parts.items()})
    model.begin(origin(MODEL, step.version, _UNKNOWN))
    state = _StateWriter(state_file, step, origin) if state_file is not None else None
    hashed = hash_model(step.task_id, version=step.version, items=shape.items, width=shape.width, dense=shape.dense)
    for block in step.blocks:
        for name, values in block.items():
            if name in parts:
                if not np.isfinite(values).all():
                    raise WeightsError("a model must not contain NaN or infinity")
                if name == "rows":
                    check_rows(values, shape)
                hashed.update(little_endian(values))
                model.append(name, values)
            elif state is not None:
                state.append(name, values)
    model.check()
    model.begin(origin(MODEL, step.version, hashed.digest()))
    if state is not None:
        state.conclude()
    return hashed.digest()


class _StateWriter:
    """Writes the state after a step. Its digest covers the arrays one after the other, so it is computed at the end."""

    def __init__(self, file: BinaryIO, step: ModelStep, origin: Origin) -> None:
        self._file, self._step, self._origin = file, step, origin
        self._writer = TensorWriter(file, {name: (_SINGLE, one) for name, one in step.state.items()})
        self.append = self._writer.append
        self._begin(_UNKNOWN)

    def _begin(self, digest: bytes) -> None:
        facts = {"kind": self._step.kind, "steps": str(self._step.steps)}
        self._writer.begin({**self._origin(STATE, self._step.version, digest), **facts})

    def conclude(self) -> None:
        self._writer.check()
        self._file.flush()
        step = self._step
        written = OptimiserState(
            task_id=step.task_id,
            version=step.version,
            kind=step.kind,
            steps=step.steps,
            tensors=map_tensors(self._file),
        )
        self._begin(written.digest)
