"""All errors that the services raise deliberately, as one tree under the product's base class.

SecEmbError (secemb_shared)
├── SettingsError              settings that cannot be used
├── OperatorTokenError         an operator token that cannot be added or revoked
├── Requests
│   ├── UnauthorizedError          no valid token
│   │   ├── LoginNeededError           no valid login to the operator's pages
│   │   ├── TokenExpiredError          an enrolment token that was valid once
│   │   ├── TokenRevokedError          an enrolment token that was revoked
│   │   └── TokenSuspendedError        an enrolment token that is suspended for now
│   ├── ForbiddenError             a valid token that does not allow this
│   ├── TicketError                a ticket that is not valid for this session
│   │   └── TicketExpiredError         it was valid once
│   ├── BusyError                  no memory for more messages, or an earlier request of the session is being served
│   ├── RequestInvalidError        does not match the interface
│   ├── MediaTypeError             a body of the wrong media type
│   ├── SlowBodyError              a body that did not arrive in time
│   └── RangeError                 a range beyond the end of the body
├── Rounds and sessions
│   ├── UnknownRoundError          no such round here
│   ├── UnknownSessionError        no such session in this round
│   ├── RoundClosedError           the round no longer accepts this
│   │   └── RoundFullError             other sessions have taken all seats
│   ├── RoundAbortedError          the round has ended here without a sum
│   ├── ControlRefusedError        the round cannot be closed or aborted
│   └── SessionConflictError       (a SessionError) used before with different bytes, or out of order
├── The peer
│   ├── PeerUnavailableError       it cannot be reached now
│   ├── PeerRefusedError           it refuses, or requests something that must be refused
│   │   ├── PeerSpentError             its privacy budget does not cover this
│   │   ├── PeerPausedError            it takes part in no new round
│   │   └── PeerAbortedError           the round has ended there without a sum
│   ├── RelayRefusedError          server 1 refused a relayed message
│   ├── OutdatedRelayKeyError      a box encrypted to a key that server 1 does not use
│   └── RelayUnavailableError      this task is not relayed
├── LedgerError                the ledger could not do what was requested
│   ├── LedgerUnavailableError     the database does not answer; trying again may help
│   │   └── LedgerFullError            its disk is full
│   ├── LedgerTakenError           another server process uses this ledger
│   ├── LedgerSettingError         a database that could lose an acknowledged write
│   ├── SchemaError                tables that are not compatible with this version
│   │   ├── SchemaMissingError         none
│   │   ├── SchemaOlderError           of an earlier version
│   │   ├── SchemaNewerError           of a later version
│   │   └── SchemaForeignError         of something else
│   ├── LedgerFormatError          a value that cannot be stored
│   ├── LedgerArchiveError         an exported ledger that cannot be read
│   ├── NotRecordedError           not in the ledger
│   │   └── UnknownTokenError          no device of that name
│   └── LedgerConflictError        conflicts with the contents of the ledger
│       ├── StateConflictError         a round in a different state, or with different facts
│       └── TokenConflictError         a token or a name that is already in use
├── Storage
│   ├── StorageUnavailableError    a file cannot be written now; trying again may help
│   ├── StorageFullError           too little room on the disk for a new session
│   ├── DamagedShareError          a share that is missing, altered or for a different list
│   └── ModelError                 a model, its file or its place in the store
│       ├── WeightsError               numbers that are not a model of the task
│       ├── ModelMissingError          no such version in the store
│       ├── ModelConflictError         the version exists with different numbers
│       └── ModelFileError             a file that cannot be used
│           ├── DamagedFileError           truncated, altered or not of the expected format
│           └── ForeignFileError           made for another task, version or purpose
├── Published models
│   ├── UnknownVersionError        not published here, or no longer kept
│   ├── DeltaUnavailableError      no delta from that version
│   ├── CatalogueUnavailableError  this server has no catalogue of the task
│   └── RollbackRefusedError       the model cannot go back to that version now
├── OptimiserError             the optimiser cannot take this step
│   ├── GradientError              a mean gradient that is not finite, or has the wrong shape
│   └── StateError                 a state of something else, or of a step that was interrupted
└── Privacy
    ├── AccountingError            a guarantee that cannot be computed or kept
    │   └── AccountantMissingError     dp-accounting is not installed
    └── BudgetSpentError           no room in the privacy budget

Headings without `Error` are not classes. Errors about the tasks of a server are in secemb_party.tenancy.errors. No
message holds a key, a token, an item or a value.
"""

from typing import TYPE_CHECKING

from sqlalchemy.exc import DontWrapMixin

from secemb_shared.errors import SecEmbError, SessionError

if TYPE_CHECKING:
    from secemb_party.ledger.records import RoundState
    from secemb_party.relay_frames import Refusal


class SettingsError(SecEmbError, ValueError):
    """The settings cannot be used; the message names each key and what to do about it."""


class OperatorTokenError(SecEmbError):
    """An operator token cannot be added or revoked; the message says what to do."""


class UnauthorizedError(SecEmbError):
    """The caller has presented no token, or an unknown one."""


class LoginNeededError(UnauthorizedError):
    """The operator is not logged in, or the login has expired."""


class TokenExpiredError(UnauthorizedError):
    """An enrolment token was valid once."""


class TokenRevokedError(UnauthorizedError):
    """An enrolment token was revoked."""


class TokenSuspendedError(UnauthorizedError):
    """An enrolment token is suspended: its device may take part again when the operator resumes it."""

    retry_after = 3600  # seconds


class ForbiddenError(SecEmbError):
    """The caller is known but not allowed to do this."""


class TicketError(SecEmbError):
    """A ticket is missing, malformed, expired, or was issued for something else."""


class TicketExpiredError(TicketError):
    """A ticket was valid once."""


class BusyError(SecEmbError):
    """There is no memory for more messages, or an earlier request of the same session is being served."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the server is busy; try again after the time in Retry-After")
        self.retry_after = retry_after  # seconds


class RequestInvalidError(SecEmbError):
    """A request does not match the interface."""


class MediaTypeError(SecEmbError):
    """The body has a media type that the route does not take."""


class SlowBodyError(SecEmbError):
    """A body did not arrive in time, or the connection closed before it was complete."""


class RangeError(SecEmbError):
    """A range starts beyond the end of the body."""

    def __init__(self, size: int) -> None:
        super().__init__("the range starts past the end of the body; fetch the whole body")
        self.size = size  # of the whole body, in bytes


class UnknownRoundError(SecEmbError, LookupError):
    """This server does not know that round."""


class UnknownSessionError(SecEmbError, LookupError):
    """That session has not begun in this round."""


class RoundClosedError(SecEmbError):
    """The round no longer accepts this."""


class RoundFullError(RoundClosedError):
    """Other sessions have taken all seats of the round."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("this round is full; join again after the time in Retry-After")
        self.retry_after = retry_after  # seconds


class RoundAbortedError(SecEmbError):
    """The round has ended on this server without a sum; the message is the reason."""


class ControlRefusedError(SecEmbError):
    """The round cannot be closed or aborted, or not by this server; the message says what to do instead."""


class SessionConflictError(SessionError):
    """The session was used before with different bytes, or out of order."""


class PeerUnavailableError(SecEmbError):
    """The peer cannot be reached now; the call is repeated."""


class PeerRefusedError(SecEmbError):
    """The peer refuses, or asks for something that this server must refuse."""


class PeerSpentError(PeerRefusedError):
    """The peer's privacy budget does not cover this."""


class PeerPausedError(PeerRefusedError):
    """The peer is not joining new rounds; the message is its operator's reason."""


class PeerAbortedError(PeerRefusedError):
    """The round has ended at the peer without a sum; the message is the reason."""


class RelayRefusedError(SecEmbError):
    """Server 1 refused a message that server 0 passed on."""

    refused_by = 1

    def __init__(self, refusal: "Refusal") -> None:
        super().__init__("server 1 refused the message")
        self.refusal, self.retry_after = refusal, refusal.retry_after


class OutdatedRelayKeyError(SecEmbError):
    """A box was encrypted to a key that server 1 does not use or no longer uses."""


class RelayUnavailableError(SecEmbError):
    """This task is not relayed; devices connect to both servers."""


class LedgerError(SecEmbError):
    """The ledger could not do what it was asked for."""


class LedgerUnavailableError(LedgerError):
    """The database cannot be reached, is busy, or failed in the middle; trying again may help."""


class LedgerFullError(LedgerUnavailableError):
    """The disk of the database is full."""


class LedgerTakenError(LedgerError):
    """Another server process is using this ledger; two would conflict."""


class LedgerSettingError(LedgerError, ValueError):
    """The database is of the wrong kind, or is set up so that an acknowledged write could be lost."""


class SchemaError(LedgerError):
    """The tables in the database are not compatible with this version."""


class SchemaMissingError(SchemaError):
    """The database has no tables yet."""


class SchemaOlderError(SchemaError):
    """The database was written by an earlier version and must be upgraded first."""


class SchemaNewerError(SchemaError):
    """The database was written by a later version."""


class SchemaForeignError(SchemaError):
    """The database holds tables of the same names that no version of the ledger has made."""


# DontWrapMixin: column types raise this while SQLAlchemy binds parameters, and it must not be wrapped.
class LedgerFormatError(LedgerError, ValueError, DontWrapMixin):
    """A value cannot be stored: it has the wrong length, is not JSON, or a fact is missing."""


class LedgerArchiveError(LedgerError, ValueError):
    """An exported ledger is truncated, altered, or of another schema."""


class NotRecordedError(LedgerError, LookupError):
    """A task, version, round, session or token is not in the ledger."""


class UnknownTokenError(NotRecordedError):
    """No device has this name, and no token has this hash."""


class LedgerConflictError(LedgerError):
    """A call conflicts with the contents of the ledger."""


class StateConflictError(LedgerConflictError):
    """A round is not in the state that the caller expects, or has different facts."""

    def __init__(self, message: str, state: "RoundState") -> None:
        super().__init__(message)
        self.state = state  # the current state of the round


class TokenConflictError(LedgerConflictError):
    """A token or the name of a device is already in use."""


class StorageUnavailableError(SecEmbError, OSError):
    """A file cannot be written now: the disk is full, or too many files are open."""


class StorageFullError(SecEmbError):
    """The disk is too full to accept new sessions."""

    retry_after = 60  # seconds


class DamagedShareError(SecEmbError):
    """A stored share is missing, altered, or for a different list of sessions."""


class ModelError(SecEmbError):
    """Something is wrong with a model, its file or its place in the store."""


class WeightsError(ModelError, ValueError):
    """These numbers are not a model of this task."""


class ModelMissingError(ModelError, LookupError):
    """The store has no such version."""


class ModelConflictError(ModelError):
    """Another model already has this version: versions are never reused."""


class ModelFileError(ModelError):
    """A file cannot be used."""


class DamagedFileError(ModelFileError):
    """A file is truncated, altered or not of the expected format."""


class ForeignFileError(ModelFileError):
    """A file was made for another task, version or purpose."""


class UnknownVersionError(SecEmbError):
    """A model version is not published here, or no longer kept."""


class DeltaUnavailableError(SecEmbError):
    """The version that a delta should start from is no longer kept, or is not an earlier one."""


class CatalogueUnavailableError(SecEmbError):
    """This server has no file of ids and titles for the task."""


class RollbackRefusedError(SecEmbError):
    """The model cannot be rolled back to that version, or not now."""


class OptimiserError(SecEmbError, ValueError):
    """The optimiser cannot take this step."""


class GradientError(OptimiserError):
    """A mean gradient is not finite or does not have the model's shape."""


class StateError(OptimiserError):
    """The optimiser state belongs to another optimiser, task or version, or a step was interrupted."""


class AccountingError(SecEmbError, ValueError):
    """A privacy guarantee cannot be computed or kept."""


class AccountantMissingError(AccountingError, ImportError):
    """The library that computes ε is not installed."""


class BudgetSpentError(SecEmbError):
    """One more round of this kind would exceed the task's privacy budget."""
