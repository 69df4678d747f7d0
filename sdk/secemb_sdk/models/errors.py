"""What can go wrong while a device trains.

ModelError (a SecEmbError)
├── NotFiniteLossError     a loss or a gradient is NaN or infinite; the device uploads zeros
├── PartError              rows, a dense part or a private part that does not have the model's shape
└── TorchMissingError      a torch model was asked for where torch is not installed (an ImportError too)
"""

from secemb_shared.errors import SecEmbError


class ModelError(SecEmbError):
    """A model cannot be trained or asked."""


class NotFiniteLossError(ModelError, ArithmeticError):
    """A loss or a gradient is NaN or infinite."""


class PartError(ModelError, ValueError):
    """A part of a model does not have the model's shape."""


class TorchMissingError(ModelError, ImportError):
    """Torch is not installed."""
