"""Every error the ledger raises on purpose.

LedgerError
├── LedgerUnavailableError   the database cannot be reached, is busy or went away: try again
├── LedgerSettingError       the database is not one that a ledger can be kept in; the message says what to change
├── SchemaError              the tables are not those of this version; the message names the fix
│   ├── SchemaMissingError       an empty database
│   ├── SchemaOlderError         to be upgraded
│   ├── SchemaNewerError         written by a later version: never touched
│   └── SchemaForeignError       tables that belong to something else
├── LedgerFormatError        a value that cannot be stored: wrong length, not JSON, a fact missing
├── NotRecordedError         a task, version, round, session or token that the ledger does not know
└── LedgerConflictError      contradicts what is already stored
    └── StateConflictError       the round is not where the caller believes it to be

Messages never contain a body, a token or the value of a statement's parameter.
"""

from sqlalchemy.exc import DontWrapMixin

from secemb_party.ledger.states import RoundState
from secemb_shared.errors import SecEmbError


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

    def __init__(self, message: str, state: RoundState) -> None:
        super().__init__(message)
        self.state = state  # where the round is
