"""The two files of an optimiser's step, written in one pass over its blocks."""

from collections.abc import Callable, Mapping
from typing import BinaryIO

import numpy as np

from secemb_party.errors import WeightsError
from secemb_party.storage.model import ModelStep, OptimiserState, Shape, little_endian
from secemb_party.storage.tensor_files import TensorWriter, map_tensors
from secemb_shared.messages.table import hash_model

MODEL, STATE = "secemb/1 model", "secemb/1 optimiser"
_SINGLE = np.dtype(np.float32)
_UNKNOWN = bytes(32)  # as long as the digest that replaces it in the header
Origin = Callable[[str, int, bytes], Mapping[str, str]]  # of a file: purpose, version, digest


def write_step(state_file: BinaryIO, model_file: BinaryIO, step: ModelStep, shape: Shape, origin: Origin) -> bytes:
    """Write the state and the version of a step; return the digest of the version."""
    parts = {"rows": (shape.items, shape.width), "dense": (shape.dense,)}
    model = TensorWriter(model_file, {name: (_SINGLE, one) for name, one in parts.items()})
    state = TensorWriter(state_file, {name: (_SINGLE, one) for name, one in step.state.items()})
    facts = {"kind": step.kind, "steps": str(step.steps)}
    model.begin(origin(MODEL, step.version, _UNKNOWN))
    state.begin({**origin(STATE, step.version, _UNKNOWN), **facts})
    hashed = hash_model(step.task_id, version=step.version, items=shape.items, width=shape.width, dense=shape.dense)
    for block in step.blocks:
        for name, values in block.items():
            if name in parts:
                if not np.isfinite(values).all():
                    raise WeightsError("a model must not contain NaN or infinity")
                hashed.update(little_endian(values))
                model.append(name, values)
            else:
                state.append(name, values)
    for writer in (model, state):
        writer.check()
    digest = hashed.digest()
    model.begin(origin(MODEL, step.version, digest))
    state_file.flush()
    written = OptimiserState(
        task_id=step.task_id,
        version=step.version,
        kind=step.kind,
        steps=step.steps,
        tensors=map_tensors(state_file),
    )
    state.begin({**origin(STATE, step.version, written.digest), **facts})
    return digest
