"""The errors of the engines, as one tree.

SecEmbError (secemb_shared)
└── ComputeUnavailableError    there are no workers now, or some were lost; trying again may help
Exception                  inside the engine on Ray
├── LostError                  a worker, a node or the cluster was lost during a call, or did not answer in time
├── UnreachableError           Ray cannot be reached, or it cannot start the workers
├── MissingError               a worker does not have that round or sum
└── CallError                  a call failed, and repeating it does not help
"""

from secemb_shared.errors import SecEmbError


class ComputeUnavailableError(SecEmbError):
    """The engine has no workers now, or has lost some during a call; the call can be repeated."""


class LostError(Exception):
    """A worker, a node or the cluster was lost during a call, or did not answer in time."""


class UnreachableError(Exception):
    """Ray cannot be reached, or it cannot start the workers; the text says why and what to do."""


class MissingError(Exception):
    """The worker does not have that round or that sum; it may be a new worker in the place of a lost one."""


class CallError(Exception):
    """A call failed in a way that repeating it does not change."""
