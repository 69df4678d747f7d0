"""Models, shares and session bodies: small interfaces, and the files that implement them."""

from secemb_party.storage.blob import Blob, FileBlob, MemoryBlob, read_all, sha256_of
from secemb_party.storage.interfaces import BodyStore, ModelStore, ShareStore
from secemb_party.storage.model import (
    Floats,
    Model,
    ModelStep,
    OptimiserState,
    Shape,
    check_scale,
    first_model,
    initial_model,
)
from secemb_party.storage.model_files import ModelFiles
from secemb_party.storage.share_files import ShareFiles

__all__ = [
    "Blob",
    "BodyStore",
    "FileBlob",
    "Floats",
    "MemoryBlob",
    "Model",
    "ModelFiles",
    "ModelStep",
    "ModelStore",
    "OptimiserState",
    "Shape",
    "ShareFiles",
    "ShareStore",
    "check_scale",
    "first_model",
    "initial_model",
    "read_all",
    "sha256_of",
]
