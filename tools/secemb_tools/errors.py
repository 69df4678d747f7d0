"""The errors of the `secemb` command and its packages.

SecEmbError (secemb_shared)
└── ToolError                 the message says what happened and what to do
    ├── OperationError        a command cannot be carried out
    │   └── UnreachableError  a server is not responding, but may be later
    ├── DatasetError          files that do not contain a known rating set
    ├── ScenarioError         a simulation that cannot be run as described
    ├── RunError              a kept run that is missing, corrupted, or has other settings
    ├── WorkerError           a process of a simulation failed or ended
    ├── StartError            a local server did not start, or stopped unexpectedly
    └── RoundError            a round of the demonstration did not open or did not end
"""

from secemb_shared.errors import SecEmbError


class ToolError(SecEmbError):
    """Base class of this package's errors."""


class OperationError(ToolError):
    """A command cannot be carried out; the message names the fix."""


class UnreachableError(OperationError):
    """A server is not responding, but may be later."""


class DatasetError(ToolError, ValueError):
    """Files do not contain a known rating set."""


class ScenarioError(ToolError, ValueError):
    """A simulation cannot be run as described."""


class RunError(ToolError, ValueError):
    """A kept run is missing, corrupted, or has other settings."""


class WorkerError(ToolError, RuntimeError):
    """A process of a simulation failed or ended; the message has its traceback."""


class StartError(ToolError, RuntimeError):
    """A local server did not start, or stopped unexpectedly; the message has the end of its log."""


class RoundError(ToolError, RuntimeError):
    """A round of the demonstration did not open or did not end."""
