"""The models that devices train. The base needs no torch; the models that need it are in `secemb_sdk.models.torch`."""

from secemb_sdk.errors import ModelError, NotFiniteLossError, PartError, TorchMissingError
from secemb_sdk.models.factorisation import MatrixFactorisation
from secemb_sdk.models.interface import Floats, Gradients, Model, Ratings, Window
from secemb_sdk.models.update import PrivateState, fit_bound, learn

__all__ = [
    "Floats",
    "Gradients",
    "MatrixFactorisation",
    "Model",
    "ModelError",
    "NotFiniteLossError",
    "PartError",
    "PrivateState",
    "Ratings",
    "TorchMissingError",
    "Window",
    "fit_bound",
    "learn",
]
