"""Models for tests of the model store."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secemb_party.storage import Model, ModelFiles, OptimiserState, Shape, initial_model

TASK, OTHER_TASK = bytes(range(32)), bytes(32)
SHAPE = Shape(items=7, width=3, dense=4)


def model(version: int = 0, *, seed: int = 1, task_id: bytes = TASK, shape: Shape = SHAPE) -> Model:
    drawn = initial_model(task_id, shape, seed=seed, scale=0.01, bias_column=True, dense_scale=0.1)
    return replace(drawn, version=version)


def same(left: Model, right: Model) -> bool:
    return (
        left.version == right.version
        and left.rows.tobytes() == right.rows.tobytes()
        and left.dense.tobytes() == right.dense.tobytes()
    )


def file_of(store: ModelFiles, version: int) -> Path:
    return store.folder / f"v{version:06d}.safetensors"


def plant_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk fail between the writing of a file and its renaming."""

    def fail(*_: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(Path, "replace", fail)


def note_disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that says from now on what reaches the disk, and when a file gets its name."""
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append("folder" if os.path.isdir(f"/dev/fd/{descriptor}") else "file")
        fsync(descriptor)

    def noted_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        assert path.parent == target.parent
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    return events


def state(version: int, *, seed: int = 1, task_id: bytes = TASK) -> OptimiserState:
    rng = np.random.default_rng(seed)
    tensors = {"rows_first": rng.random((7, 3), dtype=np.float32), "dense_first": rng.random(4, dtype=np.float32)}
    return OptimiserState(task_id=task_id, version=version, kind="adam", steps=12, tensors=tensors)
