"""Every error of the SDK, as one tree under the product's own.

SecEmbError
└── DeviceError
    ├── EnrolmentError         server 0 does not know the token
    ├── PinError               a server, its key or its task is not the one that this device was opened with
    ├── AddressError           a server's address that cannot be used safely
    ├── PolicyError            a policy that no round of the task can keep
    ├── MisfitError            a model of another shape than the task's, or than the private part in the home
    ├── RatingError            what was logged is no item or no rating
    ├── HomeError              the home directory cannot be used
    │   ├── HomeInUseError         somebody else has it open
    │   ├── HomeKeyError           no key, or not the one it is encrypted with
    │   ├── DamagedError           a file is not what was written
    │   ├── NewerHomeError         written by a newer version of the SDK
    │   └── ForgottenError         the private part was erased while a round was under way
    └── ExchangeError          a server does not do what it is asked
        ├── UnavailableError       not now; later it may
        ├── GoneError              the round, the ticket or the version is gone
        ├── OutdatedKeyError       sealed to a key that server 1 does not use any more
        ├── ConflictError          other bytes of this session are known there
        └── RefusedError           this message is refused, and would be again

`contribute()` raises no `ExchangeError`: it says in its outcome what became of the round. No message holds an item, a
rating, a key or a token.
"""

from secemb_sdk.home.detections import Misconduct
from secemb_shared.errors import SecEmbError


class DeviceError(SecEmbError):
    """Root of what the SDK raises on purpose."""

    def __init__(self, *words: object, noticed: Misconduct | None = None) -> None:
        super().__init__(*words)
        self.noticed = noticed  # of a server; None where it may be as it should


class EnrolmentError(DeviceError):
    """Server 0 does not know the enrolment token, or no longer."""


class PinError(DeviceError):
    """Something is not what this device was opened with: a server's key, its task, or the home's owner."""


class AddressError(DeviceError, ValueError):
    """A server's address cannot be used, or not safely."""


class PolicyError(DeviceError, ValueError):
    """No round of the task fits the policy."""


class MisfitError(DeviceError, ValueError):
    """The model does not have the shape of the task or of the private part in the home."""


class RatingError(DeviceError, ValueError):
    """An item or a rating that cannot be."""


class HomeError(DeviceError):
    """The home directory cannot be used."""


class HomeInUseError(HomeError):
    """Another process or object has this home open."""


class HomeKeyError(HomeError):
    """The home is encrypted with another key, or with none."""


class DamagedError(HomeError):
    """A file of the home is not what was written."""


class NewerHomeError(HomeError):
    """A file of the home was written by a newer version of the SDK."""


class ForgottenError(HomeError):
    """The private part was erased while a round was under way."""


class ExchangeError(DeviceError):
    """A server does not do what it is asked."""

    def __init__(self, reason: str, *, seconds: float | None = None, noticed: Misconduct | None = None) -> None:
        super().__init__(reason, noticed=noticed)
        self.seconds = seconds  # after which it makes sense to ask again, where the server said so


class UnavailableError(ExchangeError):
    """No answer, or not now."""


class GoneError(ExchangeError):
    """The round, the ticket or the model version is gone."""


class OutdatedKeyError(ExchangeError):
    """Something was sealed to a key that server 1 does not use any more."""


class ConflictError(ExchangeError):
    """A server holds other bytes of this session."""


class RefusedError(ExchangeError):
    """A server refuses the message itself."""


class ModelError(SecEmbError):
    """A model cannot be trained or asked."""


class NotFiniteLossError(ModelError, ArithmeticError):
    """A loss or a gradient is NaN or infinite."""


class PartError(ModelError, ValueError):
    """A part of a model does not have the model's shape."""


class UnknownModelError(ModelError, ValueError):
    """No model is registered under this name."""


class TorchMissingError(ModelError, ImportError):
    """Torch is not installed."""


class CopyError(DeviceError):
    """A copy is damaged, or not the one that both servers publish."""
