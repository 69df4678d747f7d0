"""Models written in torch, and base classes for an app's own models. Needs `pip install secemb[train]`."""

from secemb_sdk.errors import TorchMissingError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise TorchMissingError("this model needs torch, which is not installed: pip install secemb[train]") from error

from secemb_sdk.models.interface import FeatureLookup
from secemb_sdk.models.torch.base import Shapes, Tensors, TorchModel, compute_alone
from secemb_sdk.models.torch.collaborative import NeuralCollaborativeFiltering
from secemb_sdk.models.torch.convolution import Convolution
from secemb_sdk.models.torch.factorisation_machine import DeepFactorisationMachine, FactorisationMachine
from secemb_sdk.models.torch.language import LanguageModel
from secemb_sdk.models.torch.rating import RatingModel, TorchMatrixFactorisation
from secemb_sdk.models.torch.self_attention import SelfAttention
from secemb_sdk.models.torch.sequence import Places, TorchSequenceModel

__all__ = [
    "Convolution",
    "DeepFactorisationMachine",
    "FactorisationMachine",
    "FeatureLookup",
    "LanguageModel",
    "NeuralCollaborativeFiltering",
    "Places",
    "RatingModel",
    "SelfAttention",
    "Shapes",
    "Tensors",
    "TorchMatrixFactorisation",
    "TorchModel",
    "TorchSequenceModel",
    "compute_alone",
]
