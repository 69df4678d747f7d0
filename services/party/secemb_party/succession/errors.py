"""Errors about a task's successor.

SecEmbError
├── SuccessionRefusedError     the task cannot have that successor
├── NoSuccessorError           the task has none here
├── TaskSucceededError         the task has one
└── PeerRefusedError
    └── PeerSucceededError         the task has one on the peer already
"""

from secemb_party.errors import PeerRefusedError
from secemb_shared.errors import SecEmbError


class SuccessionRefusedError(SecEmbError):
    """The task cannot have that successor, or not now."""


class NoSuccessorError(SecEmbError, LookupError):
    """The task has no successor on this server."""


class TaskSucceededError(SecEmbError):
    """The task has a successor, which devices find under `successor`."""


class PeerSucceededError(PeerRefusedError):
    """The task has a successor on the peer already."""
