"""The optimiser's memory in the model store."""

import re

import pytest
from tests.unit.stored_models import OTHER_TASK, SHAPE, TASK, file_of, model, state

from secemb_party.errors import (
    ForeignFileError,
    ModelConflictError,
    ModelFileError,
)
from secemb_party.storage import ModelFiles, OptimiserState
from secemb_party.storage.model_files import state_name


def test_a_state_is_loaded_as_it_was_saved(store: ModelFiles) -> None:
    assert store.load_state() is None
    for version in (1, 2):
        store.save(model(version))
        store.save_state(state(version, seed=version))
    loaded = ModelFiles(store.folder.parent, TASK, SHAPE).load_state()
    assert loaded is not None
    assert (loaded.version, loaded.kind, loaded.steps) == (2, "adam", 12)
    assert loaded.digest == state(2, seed=2).digest
    assert store.versions() == [1, 2]


def test_a_state_without_tensors_can_be_kept(store: ModelFiles) -> None:
    store.save(model(1))
    store.save_state(OptimiserState(task_id=TASK, version=1, kind="sgd", steps=1, tensors={}))
    loaded = store.load_state()
    assert loaded is not None
    assert loaded.tensors == {}


def test_a_state_is_saved_after_its_model_and_in_its_task(store: ModelFiles) -> None:
    store.save(model(1))
    with pytest.raises(ModelConflictError, match="before the optimiser state"):
        store.save_state(state(2))
    with pytest.raises(ForeignFileError, match="another task"):
        store.save_state(state(1, task_id=OTHER_TASK))
    assert store.load_state() is None


def test_no_altered_byte_is_taken_for_another_state(store: ModelFiles) -> None:
    store.save(model(1))
    store.save_state(state(1))
    path = store.folder / state_name(1)
    data = path.read_bytes()
    messages = []
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 0x01
        path.write_bytes(altered)
        try:
            loaded = store.load_state()
            assert loaded is not None
            assert (loaded.version, loaded.kind, loaded.steps) == (1, "adam", 12)
            assert loaded.digest == state(1).digest
        except ModelFileError as error:
            messages.append(str(error))
    assert len(messages) >= len(data) - 20
    fix = re.compile(r"optimiser\.safetensors .*; restore a backup, or reset the optimiser")
    assert all(fix.search(message) for message in messages)


def test_a_model_in_the_place_of_a_state_is_noticed(store: ModelFiles) -> None:
    store.save(model(1))
    (store.folder / state_name(1)).write_bytes(file_of(store, 1).read_bytes())
    with pytest.raises(ForeignFileError):
        store.load_state()
