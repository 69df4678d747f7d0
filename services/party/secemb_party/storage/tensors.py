"""Named arrays in safetensors files: written atomically, and read with a limit on their size and types."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from secemb_party.errors import DamagedFileError, ModelFileError, ModelMissingError
from secemb_party.storage.files import write_file

Tensors = Mapping[str, npt.NDArray[np.floating]]

_LARGEST_HEADER = 2**20
_open: Callable[..., Any] = safe_open  # its stub has no types


@dataclass(frozen=True, slots=True, repr=False)
class Contents:
    """What a file holds."""

    metadata: Mapping[str, str]
    tensors: dict[str, npt.NDArray[Any]]


def write(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> None:
    """Write a file that exists whole or not at all."""
    # Safetensors reads the memory behind an array and would take a strided view for what it is not.
    whole = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    write_file(path, save(whole, dict(metadata)))


def origin(purpose: str, task_id: bytes, version: int, digest: bytes) -> dict[str, str]:
    """Return the metadata that says what a file is for and where it comes from."""
    return {"format": purpose, "task": task_id.hex(), "version": str(version), "digest": digest.hex()}


def read(path: Path, *, numbers: int, types: Collection[str], fix: str) -> Contents:
    """Return what a file holds, if that is at most `numbers` numbers of these safetensors types."""
    try:
        if path.stat().st_size > 8 * numbers + _LARGEST_HEADER:
            raise DamagedFileError(f"{path} is larger than a model of this task can be; {fix}")
        with _open(path, framework="numpy") as file:
            names = list(file.keys())
            if any(file.get_slice(name).get_dtype() not in types for name in names):
                raise DamagedFileError(f"{path} holds tensors of other types than {' or '.join(types)}; {fix}")
            return Contents(file.metadata() or {}, {name: file.get_tensor(name) for name in names})
    except FileNotFoundError as error:
        raise ModelMissingError(f"{path} does not exist; check the name, or restore it from a backup") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read; check that it is a file that this user may read") from error
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is truncated, altered or not a safetensors file; {fix}") from error
