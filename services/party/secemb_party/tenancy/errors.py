"""Errors about the tasks that a server runs, as one tree under the product's base class.

SecEmbError (secemb_shared)
├── UnknownTaskError           a task that is not served here
├── TaskEndedError             the task has completed all its rounds
├── TaskStoppedError           this server does not run the task now
├── TaskPausedError            this server takes part in no new round
├── TaskChoiceError            several tasks run here, and the request names none
├── TaskControlError           a task cannot be started, stopped or archived
└── PeerStoppedError           (a PeerPausedError) the peer does not run the task

No message holds a key, a token, an item or a value.
"""

from secemb_party.errors import PeerPausedError
from secemb_shared.errors import SecEmbError


class UnknownTaskError(SecEmbError, LookupError):
    """This server does not serve that task."""


class TaskEndedError(SecEmbError):
    """No more rounds of this task will open."""


class TaskStoppedError(SecEmbError):
    """This server does not run the task now; its operator can start it again."""

    retry_after = 300  # seconds


class TaskChoiceError(SecEmbError):
    """Several tasks run on this server, and the request does not say which one it is about; the message lists them."""


class TaskControlError(SecEmbError):
    """A task cannot be started, stopped or archived; the message says what to do instead."""


class TaskPausedError(SecEmbError):
    """This server is not joining new rounds; the message is its operator's reason."""


class PeerStoppedError(PeerPausedError):
    """The peer does not run the task."""
