"""Models: what one version is, the files it is kept in and where the first one comes from."""

from secemb_party.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    ModelError,
    ModelFileError,
    ModelMissingError,
    WeightsError,
)
from secemb_party.storage.model import Floats, Model, OptimiserState, Shape, check_scale, initial_model
from secemb_party.storage.model_store import ModelStore

__all__ = [
    "DamagedFileError",
    "Floats",
    "ForeignFileError",
    "Model",
    "ModelConflictError",
    "ModelError",
    "ModelFileError",
    "ModelMissingError",
    "ModelStore",
    "OptimiserState",
    "Shape",
    "WeightsError",
    "check_scale",
    "initial_model",
]
