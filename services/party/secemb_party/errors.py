"""Every error the services raise on purpose, as one tree under the product's own."""

from typing import TYPE_CHECKING

from sqlalchemy.exc import DontWrapMixin

from secemb_shared.errors import SecEmbError, SessionError

if TYPE_CHECKING:
    from secemb_party.ledger.records import RoundState
    from secemb_party.relay_frames import Refusal


class SettingsError(SecEmbError, ValueError):
    """The settings cannot be used; the message names each key and what to do about it."""


class UnknownTaskError(SecEmbError, LookupError):
    """This server does not serve that task."""

    def __init__(self, message: str = "this server serves another task; ask the operator for its task id") -> None:
        super().__init__(message)


class UnknownRoundError(SecEmbError, LookupError):
    """This server does not know that round."""

    def __init__(self, message: str = "there is no such round here; join again") -> None:
        super().__init__(message)


class UnknownSessionError(SecEmbError, LookupError):
    """That session has not begun in this round."""

    def __init__(self, message: str = "there is no such session in this round; send its keys first") -> None:
        super().__init__(message)


class RoundClosedError(SecEmbError):
    """The round no longer accepts this."""

    def __init__(self, message: str = "the round no longer accepts this; join the next one") -> None:
        super().__init__(message)


class SessionConflictError(SessionError):
    """The session was used before with other bytes, or out of order."""

    def __init__(
        self, message: str = "this session already holds other bytes; resend the first ones unchanged"
    ) -> None:
        super().__init__(message)


class UnauthorizedError(SecEmbError):
    """The caller has shown no token, or one that is not known."""

    def __init__(self, message: str = "send a valid token as Authorization: Bearer") -> None:
        super().__init__(message)


class ForbiddenError(SecEmbError):
    """The caller is known and may not do this."""

    def __init__(self, message: str = "this token does not allow that") -> None:
        super().__init__(message)


class TicketError(SecEmbError):
    """A ticket is missing, malformed, expired, or was issued for something else."""


class TicketExpiredError(TicketError):
    """A ticket was valid once."""


class RequestInvalidError(SecEmbError):
    """A request does not follow the interface's description."""


class MediaTypeError(SecEmbError):
    """The body has a media type that the route does not take."""


class SlowBodyError(SecEmbError):
    """A body did not arrive in time."""


class RangeError(SecEmbError):
    """A range starts beyond the end of the body."""


class UnknownVersionError(SecEmbError):
    """A model version is not published here, or no longer kept."""


class DeltaUnavailableError(SecEmbError):
    """The version that a delta should start from is no longer kept, or not an earlier one."""


class RollbackRefusedError(SecEmbError):
    """The model cannot go back to that version, or not now."""


class OutdatedRelayKeyError(SecEmbError):
    """A box was encrypted to a key that server 1 does not use, or no longer."""


class RelayUnavailableError(SecEmbError):
    """Nothing is relayed in this task; devices talk to both servers."""


class RelayRefusedError(SecEmbError):
    """Server 1 refused a message that server 0 passed on."""

    refused_by = 1

    def __init__(self, refusal: "Refusal") -> None:
        super().__init__("server 1 refused the message")
        self.refusal, self.retry_after = refusal, refusal.retry_after


class PeerRefusedError(SecEmbError):
    """The other server refuses, or asks for something that this one must refuse."""


class PeerSpentError(PeerRefusedError):
    """The privacy budget of the other server has no room for this."""


class PeerUnavailableError(SecEmbError):
    """The other server cannot be reached now; the call is repeated."""


class BusyError(SecEmbError):
    """Every place in the queue is taken."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the server is busy; try again after the time in Retry-After")
        self.retry_after = retry_after  # seconds


class LedgerError(SecEmbError):
    """The ledger could not do what it was asked for."""


class LedgerUnavailableError(LedgerError):
    """The database cannot be reached, is busy or went away in the middle; nothing says that trying again is wrong."""


class LedgerSettingError(LedgerError, ValueError):
    """The database is of the wrong kind or is set up so that an acknowledged write could be lost."""


class SchemaError(LedgerError):
    """The tables in the database are not those that this version works with."""


class SchemaMissingError(SchemaError):
    """The database has no tables yet."""


class SchemaOlderError(SchemaError):
    """The database was written by an earlier version and must be upgraded first."""


class SchemaNewerError(SchemaError):
    """The database was written by a later version."""


class SchemaForeignError(SchemaError):
    """The database holds tables of the same names that no version of the ledger has made."""


# DontWrapMixin: column types raise this while SQLAlchemy binds parameters, and it must come out as it is.
class LedgerFormatError(LedgerError, ValueError, DontWrapMixin):
    """A value cannot be stored: it has the wrong length, is not JSON, or a fact is missing."""


class NotRecordedError(LedgerError, LookupError):
    """A task, version, round, session or token is not in the ledger."""


class LedgerConflictError(LedgerError):
    """A call contradicts what the ledger already holds."""


class StateConflictError(LedgerConflictError):
    """A round is not in the state that the caller expects, or holds other facts."""

    def __init__(self, message: str, state: "RoundState") -> None:
        super().__init__(message)
        self.state = state  # where the round is


class DamagedShareError(SecEmbError):
    """A stored share is missing, altered, or the share of another list of sessions."""


class ModelError(SecEmbError):
    """A model, its file or its place in the store is not in order."""


class WeightsError(ModelError, ValueError):
    """These numbers are no model of this task."""


class ModelMissingError(ModelError, LookupError):
    """The store has no such version."""


class ModelConflictError(ModelError):
    """Another model already has this version: a version is never given twice."""


class ModelFileError(ModelError):
    """A file cannot be used."""


class DamagedFileError(ModelFileError):
    """A file is truncated, altered or not the format it should be."""


class ForeignFileError(ModelFileError):
    """A file was made for another task, version or purpose."""


class AccountingError(SecEmbError, ValueError):
    """A promise that cannot be computed or kept."""


class AccountantMissingError(AccountingError, ImportError):
    """The library that computes ε is not installed."""


class BudgetSpentError(SecEmbError):
    """One more round of this kind would go beyond the task's privacy budget."""


class OptimiserError(SecEmbError, ValueError):
    """The optimiser cannot take this step."""


class GradientError(OptimiserError):
    """A mean gradient is not finite or does not have the model's shape."""


class StateError(OptimiserError):
    """The optimiser's state belongs to another optimiser, task or version, or a step was cut short."""
