"""The errors of the `secemb` command and of what it is made of.

SecEmbError (secemb_shared)
└── ToolError                 the message says what happened and what to do
    ├── OperationError        a command cannot do this
    │   └── UnreachableError  a server does not answer; it may a little later
    ├── DatasetError          files that do not hold a known rating set
    ├── ScenarioError         a simulation that cannot be run as described
    ├── RunError              a kept run that is missing, corrupted, or has other settings
    ├── WorkerError           a process of a simulation failed or ended
    ├── StartError            a local server did not start, or ended by itself
    └── RoundError            a round of the demonstration did not open or did not end
"""

from secemb_shared.errors import SecEmbError


class ToolError(SecEmbError):
    """The root of this package's errors."""


class OperationError(ToolError):
    """A command cannot do this; the message names the fix."""


class UnreachableError(OperationError):
    """A server does not answer; it may a little later."""


class DatasetError(ToolError, ValueError):
    """Files that do not hold a known rating set."""


class ScenarioError(ToolError, ValueError):
    """A simulation that cannot be run as described."""


class RunError(ToolError, ValueError):
    """A kept run is missing, corrupted, or has other settings."""


class WorkerError(ToolError, RuntimeError):
    """A process of a simulation failed or ended; the message has its traceback."""


class StartError(ToolError, RuntimeError):
    """A local server did not start, or ended by itself; the message has the end of its log."""


class RoundError(ToolError, RuntimeError):
    """A round of the demonstration did not open or did not end."""
