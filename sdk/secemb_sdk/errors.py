"""Every error of the SDK, as one tree under the product's root.

SecEmbError
└── DeviceError
    ├── EnrolmentError         server 0 does not accept the token
    │   ├── TokenExpiredError      the token has expired
    │   └── TokenRevokedError      the token was revoked
    ├── PinError               a server, its key or its task is not the one this device was opened with
    ├── AddressError           a server's address that cannot be used safely
    ├── PolicyError            a policy that no round of the task can meet
    ├── RatingError            a logged item or rating that is not valid
    ├── EventLoopError         a blocking device used on an event loop
    ├── MisfitError            a model that does not fit the task, or the private part in the home
    ├── ModelError             a model that cannot be created, trained or evaluated
    │   ├── UnknownModelError      no model has this name
    │   ├── TorchMissingError      the model needs torch, which is not installed
    │   ├── PartError              part of a model with the wrong shape
    │   └── NotFiniteLossError     a loss or a gradient is NaN or infinite
    ├── CopyError              a copy of the model or catalogue that is corrupted, or not the announced one
    ├── HomeError              the home directory cannot be used
    │   ├── HomeInUseError         another process or object has it open
    │   ├── HomeKeyError           the key is missing or wrong
    │   ├── DamagedError           a file is corrupted
    │   ├── NewerHomeError         written by a newer version of the SDK
    │   └── ForgottenError         the private part was erased during a round
    ├── SuccessorError         a successor that this device must not follow
    └── ExchangeError          a server does not fulfil a request
        ├── UnavailableError       temporarily unavailable; retry later
        │   └── CertificateError       the server's certificate is not accepted, or its port uses another protocol
        ├── EndedError             the task has ended; there will be no more rounds
        │   └── DeclinedError          the task has a successor, and the app's policy does not follow it
        ├── SucceededError         the task has a successor (the device follows it by itself)
        ├── GoneError              the round, the ticket or the version has ended
        │   └── RoundFullError         other devices have taken all seats of the round
        ├── OutdatedKeyError       encrypted to a key that server 1 no longer uses
        ├── ConflictError          the server already has different bytes for this session
        └── RefusedError           the message is refused; retrying would not help

`contribute()` raises no `ExchangeError`: its outcome tells how the round ended. No message contains an item, a rating,
a key or a token.
"""

from secemb_sdk.home.detections import Misconduct
from secemb_shared.errors import SecEmbError


class DeviceError(SecEmbError):
    """Base class of all errors that the SDK raises."""

    def __init__(self, *words: object, noticed: Misconduct | None = None) -> None:
        super().__init__(*words)
        self.noticed = noticed  # the protocol violation by a server, if there was one


class EnrolmentError(DeviceError):
    """Server 0 does not accept the enrolment token."""


class TokenExpiredError(EnrolmentError):
    """The enrolment token has expired; the device's next token opens the same home."""


class TokenRevokedError(EnrolmentError):
    """The enrolment token was revoked: this device can no longer take part."""


class PinError(DeviceError):
    """A server's key, its task or the home's owner differs from what this device was opened with."""


class AddressError(DeviceError, ValueError):
    """A server's address cannot be used, or cannot be used safely."""


class PolicyError(DeviceError, ValueError):
    """No round of the task fits the policy."""


class RatingError(DeviceError, ValueError):
    """A logged item or rating is not valid."""


class EventLoopError(DeviceError, RuntimeError):
    """A blocking device was used on an event loop."""


class MisfitError(DeviceError, ValueError):
    """The model's shape does not match the task, or the private part in the home."""


class ModelError(DeviceError):
    """A model cannot be created, trained or evaluated."""


class UnknownModelError(ModelError, ValueError):
    """No model is registered under this name."""


class TorchMissingError(ModelError, ImportError):
    """Torch is not installed."""


class PartError(ModelError, ValueError):
    """Part of a model has the wrong shape."""


class NotFiniteLossError(ModelError, ArithmeticError):
    """A loss or a gradient is NaN or infinite."""


class CopyError(DeviceError):
    """A copy of the public model is corrupted, or is not the one that both servers publish."""


class SuccessorError(DeviceError):
    """A successor is forged, or the two servers present different ones; nothing has changed."""


class HomeError(DeviceError):
    """The home directory cannot be used."""


class HomeInUseError(HomeError):
    """Another process or object has this home open."""


class HomeKeyError(HomeError):
    """The home is encrypted with a different key, or is not encrypted."""


class DamagedError(HomeError):
    """A file of the home is corrupted."""


class NewerHomeError(HomeError):
    """A file of the home was written by a newer version of the SDK."""


class ForgottenError(HomeError):
    """The private part was erased during a round."""


class ExchangeError(DeviceError):
    """A server does not fulfil a request."""

    def __init__(self, reason: str, *, seconds: float | None = None, noticed: Misconduct | None = None) -> None:
        super().__init__(reason, noticed=noticed)
        self.seconds = seconds  # seconds until a retry, if the server gave a time


class UnavailableError(ExchangeError):
    """The server did not respond, or is temporarily unavailable."""


class CertificateError(UnavailableError):
    """The server's certificate is not accepted, or the address is for another protocol; retrying does not help."""


class EndedError(ExchangeError):
    """The task has ended."""


class DeclinedError(EndedError):
    """The task has a successor, and the app's policy does not follow it."""


class SucceededError(ExchangeError):
    """The task has a successor."""


class GoneError(ExchangeError):
    """The round, the ticket or the model version has ended."""


class RoundFullError(GoneError):
    """Other devices have taken all seats of the round; this one may join a later one."""


class OutdatedKeyError(ExchangeError):
    """A message was encrypted to a key that server 1 no longer uses."""


class ConflictError(ExchangeError):
    """The server already has different bytes for this session."""


class RefusedError(ExchangeError):
    """The server refuses the message itself."""
