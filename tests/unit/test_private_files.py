"""Files of models, optimisers and shares are the server's own, whatever its umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.stored_models import SHAPE, TASK, model

from secemb_party.storage import ModelFiles, OptimiserState, ShareFiles
from secemb_party.storage.weights import export_weights


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_servers_user_reads_models_states_and_shares(tmp_path: Path) -> None:
    store = ModelFiles(tmp_path / "models", TASK, SHAPE)
    store.save(model(0))
    tensors = {"m": np.zeros(3, dtype=np.float32)}
    store.save_state(OptimiserState(task_id=TASK, version=0, kind="adam", steps=1, tensors=tensors))
    ShareFiles(tmp_path).save(bytes(32), bytes(32), b"share")
    modes = {path.name: mode_of(path) for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


def test_an_export_is_for_others_and_follows_the_umask(tmp_path: Path) -> None:
    export_weights(model(0), tmp_path / "out.safetensors")
    assert mode_of(tmp_path / "out.safetensors") == 0o666
