"""What several unit tests are given."""

from pathlib import Path

import pytest
from tests.unit.stored_models import SHAPE, TASK

from secemb_party.storage import ModelFiles


@pytest.fixture
def store(tmp_path: Path) -> ModelFiles:
    """Return an empty model store."""
    return ModelFiles(tmp_path / "models", TASK, SHAPE)
