"""What the services refuse by themselves, and settings that cannot be.

SecEmbError
├── SettingsError            the settings file or a SECEMB_ variable is wrong; the message names the key and the fix
├── UnknownTaskError         no such task here
├── UnknownRoundError        no such round here
├── UnknownSessionError      no such session in this round
├── UnknownVersionError      no such version of the model here, or no longer
├── DeltaUnavailableError    nothing leads from that version of the table to this one
├── RoundClosedError         the round takes no more of this: sealed, published or aborted
├── SessionError             (shared)
│   └── SessionConflictError     the session was used before with other bytes, or out of order
├── RollbackRefusedError     the model cannot go back to that version now
├── OutdatedRelayKeyError    sealed to a key that server 1 does not use, or no longer
├── RelayUnavailableError    the task wants devices to talk to both servers
├── PeerRefusedError         the two servers do not agree
│   └── PeerSpentError           the other server's privacy budget has no room for this
├── PeerUnavailableError     the other server cannot be reached now
├── UnauthorizedError        no token, or one that is not known
└── ForbiddenError           a known caller who may not do this

Messages say what to do. They never contain an id, a token or anything else that the caller has sent.
"""

from secemb_shared.errors import SecEmbError, SessionError


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
    """The round takes no more of this."""

    def __init__(self, message: str = "the round takes no more messages of this kind; join the next one") -> None:
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


class UnknownVersionError(SecEmbError):
    """A model version is not published here, or no longer kept."""


class DeltaUnavailableError(SecEmbError):
    """The version that a delta should start from is no longer kept, or not an earlier one."""


class RollbackRefusedError(SecEmbError):
    """The model cannot go back to that version, or not now."""


class OutdatedRelayKeyError(SecEmbError):
    """A box was sealed to a key that server 1 does not use, or no longer."""


class RelayUnavailableError(SecEmbError):
    """Nothing is relayed in this task; devices talk to both servers."""


class PeerRefusedError(SecEmbError):
    """The other server refuses, or asks for something that this one must refuse."""


class PeerSpentError(PeerRefusedError):
    """The privacy budget of the other server has no room for this."""


class PeerUnavailableError(SecEmbError):
    """The other server cannot be reached now; the call is repeated."""
