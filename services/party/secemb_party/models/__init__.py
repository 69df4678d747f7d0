"""Models: what one version is, the files it is kept in and where the first one comes from."""

from secemb_party.models.errors import (
    DamagedFileError,
    ForeignFileError,
    ModelConflictError,
    ModelError,
    ModelFileError,
    ModelMissingError,
    WeightsError,
)
from secemb_party.models.initial import check_scale, initial
from secemb_party.models.model import Floats, Model, Shape
from secemb_party.models.state import OptimiserState
from secemb_party.models.store import ModelStore

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
    "initial",
]
