"""The private part of a model as it is kept in the home."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from secemb_sdk.errors import DamagedError
from secemb_sdk.models import PrivateState
from secemb_sdk.record import Record

_ARRAYS = ("values", "first", "second")
_STORED = np.dtype("<f4")


def encode_private(state: PrivateState) -> Record:
    """Return the record of a private state."""
    arrays = {name: getattr(state, name).astype(_STORED).tobytes() for name in _ARRAYS}
    return Record({"steps": state.steps}, arrays)


def decode_private(record: Record) -> PrivateState:
    """Read `encode_private`."""
    try:
        arrays = {name: np.frombuffer(record.parts[name], _STORED).astype(np.float32) for name in _ARRAYS}
        return PrivateState(steps=int(record.fields["steps"]), **arrays)
    except (KeyError, ValueError):
        raise DamagedError("the private part cannot be read; forget() it and begin anew") from None


def export_private(state: PrivateState) -> Mapping[str, Any]:
    """Return a private state as plain data."""
    return {"steps": state.steps, **{name: getattr(state, name).tolist() for name in _ARRAYS}}
