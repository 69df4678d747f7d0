"""Files that are there as a whole or not at all, whenever the process or the machine dies."""

import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from secemb_party.errors import DamagedFileError, ModelFileError, ModelMissingError


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: without it a rename may be forgotten in a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Tensors = Mapping[str, npt.NDArray[np.floating]]

_LARGEST_HEADER = 2**20
_UNFINISHED = ".tmp"
_open: Callable[..., Any] = safe_open  # its stub has no types


@dataclass(frozen=True, slots=True, repr=False)
class Contents:
    """What a file holds."""

    metadata: Mapping[str, str]
    tensors: dict[str, npt.NDArray[Any]]


def write(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> None:
    """Write a file under its name only once all of it is on the disk; a crash leaves the old one or the new one."""
    # Safetensors reads the memory behind an array and would take a strided view for what it is not.
    whole = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            file.write(save(whole, dict(metadata)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def read(path: Path, *, numbers: int, types: Collection[str], fix: str) -> Contents:
    """Return what a file holds: at most so many numbers, of these types of safetensors only."""
    try:
        if path.stat().st_size > 8 * numbers + _LARGEST_HEADER:
            raise DamagedFileError(f"{path} is larger than a model of this task can be; {fix}")
        with _open(path, framework="numpy") as file:
            names = list(file.keys())
            if any(file.get_slice(name).get_dtype() not in types for name in names):
                raise DamagedFileError(f"{path} holds tensors of another type than {' or '.join(types)}; {fix}")
            return Contents(file.metadata() or {}, {name: file.get_tensor(name) for name in names})
    except FileNotFoundError as error:
        raise ModelMissingError(f"there is no {path}; check the name, or put a backup there") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read; see that it is a file and that this user may read it") from error
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is truncated, altered or no safetensors file; {fix}") from error


def make_folder(folder: Path) -> None:
    """Create a folder, and see to it that a crash does not take it away again."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers left behind that were killed. Only the one process that writes here may call it."""
    for leftover in folder.glob(f".*{_UNFINISHED}"):
        leftover.unlink(missing_ok=True)
